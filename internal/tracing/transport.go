package tracing

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

const scope = "github.com/weirhq/weir/internal/tracing"

// Stripe shows calls to Stripe. A span has the call's method, its path with ids left out, the answer's status and its
// request id, which Stripe's support asks for. Query, body and headers stay out of it.
func (t *Tracing) Stripe(next http.RoundTripper) http.RoundTripper {
	if t == nil {
		return next
	}
	return &calls{next, t.provider.Tracer(scope)}
}

type calls struct {
	next   http.RoundTripper
	tracer trace.Tracer
}

// RoundTrip implements http.RoundTripper.
func (c *calls) RoundTrip(r *http.Request) (*http.Response, error) {
	route := template(r.URL.Path)
	ctx, span := c.tracer.Start(r.Context(), "stripe "+r.Method+" "+route, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("http.request.method", r.Method), attribute.String("url.template", route), attribute.String("server.address", r.URL.Hostname())))
	defer span.End()
	res, err := c.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		span.SetStatus(codes.Error, "no answer")
		return nil, err
	}
	span.SetAttributes(attribute.Int("http.response.status_code", res.StatusCode))
	if id := res.Header.Get("Request-Id"); id != "" && len(id) <= 64 {
		span.SetAttributes(attribute.String("stripe.request_id", id))
	}
	if res.StatusCode >= http.StatusBadRequest {
		span.SetStatus(codes.Error, http.StatusText(res.StatusCode))
	}
	return res, nil
}

// words are the parts of Stripe's paths that are no ids.
var words = map[string]bool{
	"": true, "v1": true, "v2": true, "billing": true, "core": true, "meters": true, "meter_events": true, "meter_event_adjustments": true,
	"event_summaries": true, "customers": true, "subscriptions": true, "subscription_items": true, "invoices": true, "invoiceitems": true,
	"lines": true, "finalize": true, "preview": true, "credit_notes": true, "prices": true, "products": true, "webhook_endpoints": true,
	"events": true, "event_destinations": true, "account": true,
}

// template leaves out of a path whatever may be an id.
func template(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if !words[p] {
			parts[i] = "{id}"
		}
	}
	return strings.Join(parts, "/")
}
