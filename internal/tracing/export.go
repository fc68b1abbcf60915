package tracing

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

func name(service string) attribute.KeyValue { return attribute.String("service.name", service) }
func versionOf(version string) attribute.KeyValue {
	return attribute.String("service.version", version)
}

// told logs an export that fails, once until one succeeds: traces that are lost harm nothing.
type told struct {
	sdk.SpanExporter
	log  *slog.Logger
	said atomic.Bool
}

// ExportSpans implements sdk.SpanExporter.
func (t *told) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := t.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err == nil:
		t.said.Store(false)
	case t.said.CompareAndSwap(false, true):
		t.log.Warn("traces could not be sent; they are dropped, and it is said once until one is sent", "error", err)
	}
	return nil
}

// within passes on what happens within a span that is recorded.
type within struct{ pgx.QueryTracer }

type outside struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (w within) TraceQueryStart(ctx context.Context, c *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return context.WithValue(ctx, outside{}, true)
	}
	return w.QueryTracer.TraceQueryStart(ctx, c, q)
}

// TraceQueryEnd implements pgx.QueryTracer.
func (w within) TraceQueryEnd(ctx context.Context, c *pgx.Conn, q pgx.TraceQueryEndData) {
	if ctx.Value(outside{}) == nil {
		w.QueryTracer.TraceQueryEnd(ctx, c, q)
	}
}
