// Package tracing sends OpenTelemetry traces of the slow paths where the standard variables ask for them: jobs, calls
// to Stripe, and round trips to the database. Where they don't, nothing of it is made and nothing is paid.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirhq/weir/enforcer/spans"
)

// stopTime bounds the last export of a process that ends.
const stopTime = 5 * time.Second

// Tracing is where spans go. A nil *Tracing is none: every method may be called on it and does nothing.
type Tracing struct {
	provider *sdk.TracerProvider
	log      *slog.Logger
}

// Start makes what the variables of OpenTelemetry say (OTEL_TRACES_EXPORTER, OTEL_EXPORTER_OTLP_ENDPOINT and the like),
// or nil where they ask for no traces. It connects to nobody: the first export does, and one that fails is logged. An
// error names the variable. service is the name of the program, unless OTEL_SERVICE_NAME gives another.
func Start(ctx context.Context, env func(string) string, service, version string, log *slog.Logger) (*Tracing, error) {
	endpoint, err := endpoint(env)
	if err != nil || endpoint == "" {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint))
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(name(service), versionOf(version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return &Tracing{sdk.NewTracerProvider(sdk.WithBatcher(&told{SpanExporter: exporter, log: log}), sdk.WithResource(about)), log}, nil
}

// Stop sends what is left, for at most a few seconds. Traces that cannot be sent are dropped, and that is logged.
func (t *Tracing) Stop(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Warn("the last traces could not be sent", "error", err)
	}
}

// Provider makes spans; nil on a nil Tracing.
func (t *Tracing) Provider() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

// Database shows a pool's round trips: calls of Weir's functions, and within a span every statement.
func (t *Tracing) Database(cfg *pgxpool.Config) {
	if t != nil {
		cfg.ConnConfig.Tracer = spans.New(t.provider)
	}
}

// Work shows a pool's statements within spans only: what a program asks each second to find work is no news.
func (t *Tracing) Work(cfg *pgxpool.Config) {
	if t != nil {
		cfg.ConnConfig.Tracer = within{spans.New(t.provider)}
	}
}

// endpoint is where traces go, by the rules of OpenTelemetry; empty: nowhere. Unlike the SDK's, the default is off.
func endpoint(env func(string) string) (string, error) {
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return "", nil
	}
	to := env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if to == "" {
		if base := env("OTEL_EXPORTER_OTLP_ENDPOINT"); base != "" {
			to = strings.TrimSuffix(base, "/") + "/v1/traces"
		}
	}
	switch exporter := env("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return "", nil
	case "":
		if to == "" {
			return "", nil
		}
	case "otlp":
		if to == "" {
			to = "http://localhost:4318/v1/traces"
		}
	default:
		return "", fmt.Errorf("OTEL_TRACES_EXPORTER is %q: use otlp, or none", exporter)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if p := env(name); p != "" {
			if p != "http/protobuf" {
				return "", fmt.Errorf("%s is %q: use http/protobuf, the one that is spoken here", name, p)
			}
			break
		}
	}
	u, err := url.Parse(to)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", errors.New("OTEL_EXPORTER_OTLP_ENDPOINT is no address: use http://host:4318 or https://host") // it may hold a password: not quoted
	}
	return to, nil
}
