// Package otlptest receives OpenTelemetry traces in tests.
package otlptest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	v1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Receiver keeps what it was sent. It is safe for concurrent use.
type Receiver struct {
	url string

	mu    sync.Mutex
	spans []*v1.Span
	raw   strings.Builder
}

// New starts a Receiver that ends with t.
func New(t testing.TB) *Receiver {
	t.Helper()
	r := &Receiver{}
	server := httptest.NewServer(http.HandlerFunc(r.take))
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

// URL is what OTEL_EXPORTER_OTLP_ENDPOINT is set to.
func (r *Receiver) URL() string { return r.url }

// Spans are those that were sent until now.
func (r *Receiver) Spans() []*v1.Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*v1.Span(nil), r.spans...)
}

// Raw is every byte that was sent until now.
func (r *Receiver) Raw() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.raw.String()
}

func (r *Receiver) take(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var in collector.ExportTraceServiceRequest
	if err != nil || req.URL.Path != "/v1/traces" || proto.Unmarshal(body, &in) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raw.Write(body)
	for _, rs := range in.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			r.spans = append(r.spans, ss.GetSpans()...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf") // an empty answer is an empty message
}
