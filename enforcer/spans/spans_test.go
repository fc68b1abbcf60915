package spans_test

import (
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/enforcer/spans"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
)

const planFile = `
default_plan: free
features: {events: {}}
plans: {free: {quota: {events: 5_000}, on_exceeded: block}}
`

func traced(t *testing.T) (*tracetest.InMemoryExporter, *sdk.TracerProvider, *pgxpool.Pool) {
	t.Helper()
	out := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(out))
	cfg, err := pgxpool.ParseConfig(schematest.URL(t))
	require.NoError(t, err)
	cfg.ConnConfig.Tracer = spans.New(provider)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return out, provider, pool
}

func count(all tracetest.SpanStubs) map[string]int {
	n := map[string]int{}
	for _, s := range all {
		n[s.Name]++
	}
	return n
}

// What asks the database is a span; what a lease answers is none; and whose units they are stands nowhere.
func TestTheSlowPathsAreSpans(t *testing.T) {
	t.Parallel()
	out, _, pool := traced(t)
	catalog, err := plans.Parse([]byte(planFile))
	require.NoError(t, err)
	e, err := enforcer.New(pool, &enforcer.Config{ // a loaded machine is not what this is about
		Plans: catalog, NoJournal: true, MaxWait: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	require.NoError(t, e.Start(t.Context()))
	for range 3_000 { // one first contact, and asks as the lease is spent
		d, err := e.Consume(t.Context(), "planted-account", "events", 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
	}
	require.NoError(t, e.Flush(t.Context()))
	_, err = e.ConsumeOnce(t.Context(), "planted-account", "events", 1, "planted-key")
	require.NoError(t, err)
	require.NoError(t, e.Stop(t.Context()))

	all := out.GetSpans()
	n := count(all)
	for _, name := range []string{"weir.contact", "weir.lease", "weir.flush", "weir.consume_strict"} {
		require.Positive(t, n[name], "%s in %v", name, n)
	}
	require.Less(t, len(all), 100)
	flushed := false
	for _, s := range all {
		require.True(t, s.EndTime.After(s.StartTime))
		require.NotContains(t, fmt.Sprint(s.Name, s.Attributes, s.Status), "planted")
		for _, a := range s.Attributes {
			flushed = flushed || s.Name == "weir.flush" && string(a.Key) == "weir.keys" && a.Value.AsInt64() == 1
		}
	}
	require.True(t, flushed)
}

func TestAFailureIsShownWithoutItsText(t *testing.T) {
	t.Parallel()
	out, provider, pool := traced(t)
	_, err := pool.Exec(t.Context(), "SELECT weir.no_such_function('planted')")
	require.Error(t, err)
	_, err = pool.Exec(t.Context(), "SELECT 'planted'") // outside of a span: not ours
	require.NoError(t, err)
	ctx, parent := provider.Tracer("test").Start(t.Context(), "parent")
	_, err = pool.Exec(ctx, " select 'planted'")
	require.NoError(t, err)
	parent.End()

	all := out.GetSpans()
	require.Len(t, all, 3)
	require.Equal(t, "weir.no_such_function", all[0].Name)
	require.Equal(t, "the database refused it", all[0].Status.Description)
	require.Contains(t, fmt.Sprint(all[0].Attributes), "42883")
	require.Equal(t, "SELECT", all[1].Name)
	require.Equal(t, all[2].SpanContext.SpanID(), all[1].Parent.SpanID())
	require.NotContains(t, fmt.Sprintf("%+v", all), "planted")
}

// The library brings no OpenTelemetry; this package brings its API and nothing that exports.
func TestWhatIsLinked(t *testing.T) {
	t.Parallel()
	for pkg, allowed := range map[string]bool{"enforcer": false, "enforcer/spans": true} {
		list, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "github.com/weirhq/weir/"+pkg).Output()
		require.NoError(t, err)
		for dep := range strings.FieldsSeq(string(list)) {
			if strings.HasPrefix(dep, "go.opentelemetry.io/") {
				require.True(t, allowed, "%s links %s", pkg, dep)
				require.NotContains(t, dep, "/sdk/trace")
				require.NotContains(t, dep, "exporters")
			}
		}
	}
}
