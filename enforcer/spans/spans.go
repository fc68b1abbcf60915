// Package spans shows an Enforcer's round trips to the database as OpenTelemetry spans: first contacts, asks, flushes
// and strict calls. Calls that a lease answers make none. It needs OpenTelemetry's API alone; the program that imports
// it brings the SDK and the exporter.
//
// An Enforcer copies the configuration of the pool that it is given:
//
//	cfg.ConnConfig.Tracer = spans.New(provider)
//	pool, err := pgxpool.NewWithConfig(ctx, cfg)
//	quota, err := enforcer.New(pool, &enforcer.Config{})
package spans

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

const (
	scope  = "github.com/weirhq/weir/enforcer/spans"
	schema = "weir."
)

// Tracer is a pgx.QueryTracer. A span is named by the function of schema weir that is called; it carries how many keys
// the call is about and, where it fails, the SQLSTATE. No text of a statement, no argument, and no message of the
// server's goes into it, so that accounts and secrets stay where they are. It is safe for concurrent use.
type Tracer struct{ tracer trace.Tracer }

// New makes a Tracer of a provider, which must not be nil.
func New(provider trace.TracerProvider) *Tracer {
	return &Tracer{provider.Tracer(scope)}
}

// begun is a statement in flight.
type begun struct {
	name  string
	keys  int
	start time.Time
	beat  bool // a heartbeat that carries nothing
}

type begunKey struct{}

// TraceQueryStart implements pgx.QueryTracer.
func (t *Tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	name := called(q.SQL)
	if name == "" {
		if !trace.SpanContextFromContext(ctx).IsSampled() {
			return ctx // the pool's own, and other people's
		}
		name = verb(q.SQL)
	}
	b := &begun{name: name, keys: -1, start: time.Now()}
	for _, a := range q.Args {
		if keys, ok := a.([]int64); ok {
			b.keys = len(keys)
			break
		}
	}
	b.beat = name == schema+"flush" && b.keys == 0
	return context.WithValue(ctx, begunKey{}, b)
}

// TraceQueryEnd implements pgx.QueryTracer. The span is made here, with the time at which the statement began: a
// heartbeat each second would bury the rest, and is shown only when it fails.
func (t *Tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryEndData) {
	b, ok := ctx.Value(begunKey{}).(*begun)
	if !ok || b.beat && q.Err == nil {
		return
	}
	attributes := []attribute.KeyValue{attribute.String("db.system.name", "postgresql"), attribute.String("db.operation.name", b.name)}
	if b.keys >= 0 {
		attributes = append(attributes, attribute.Int("weir.keys", b.keys))
	}
	_, span := t.tracer.Start(ctx, b.name, trace.WithTimestamp(b.start), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attributes...))
	if q.Err != nil && !errors.Is(q.Err, pgx.ErrNoRows) {
		fail(span, q.Err)
	}
	span.End()
}

func fail(span trace.Span, err error) {
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg):
		span.SetAttributes(attribute.String("db.response.status_code", pg.Code))
		span.SetStatus(codes.Error, "the database refused it")
	case errors.Is(err, context.DeadlineExceeded):
		span.SetStatus(codes.Error, "the database did not answer in time")
	case errors.Is(err, context.Canceled):
		span.SetStatus(codes.Error, "it was cancelled")
	default:
		span.SetStatus(codes.Error, "the connection failed")
	}
}

// called is the first function of schema weir that a statement calls, or nothing.
func called(sql string) string {
	for rest := sql; ; {
		i := strings.Index(rest, schema)
		if i < 0 {
			return ""
		}
		rest = rest[i+len(schema):]
		n := 0
		for n < len(rest) && (rest[n] == '_' || 'a' <= rest[n] && rest[n] <= 'z') {
			n++
		}
		if n > 0 && n < len(rest) && rest[n] == '(' {
			return schema + rest[:n]
		}
	}
}

// verb is a statement's first word.
func verb(sql string) string {
	sql = strings.TrimLeft(sql, " \t\r\n")
	n := 0
	for n < len(sql) && n < 16 && ('A' <= sql[n] && sql[n] <= 'Z' || 'a' <= sql[n] && sql[n] <= 'z') {
		n++
	}
	return strings.ToUpper(sql[:n])
}
