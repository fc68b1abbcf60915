package sandbox_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/sandbox"
	"github.com/weirhq/weir/internal/stripesim"
)

type simulated struct{ *stripesim.Server }

func (s simulated) Begin(context.Context) (string, time.Time, error) { return "", s.Now(), nil }

func (s simulated) Advance(ctx context.Context, to time.Time) error { return s.Server.Advance(ctx, to) }

func (simulated) End(context.Context) (bool, error) { return false, nil }

func check(t *testing.T, sim *stripesim.Server) (string, error) {
	t.Helper()
	url, stop, err := sim.Listen()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, stop()) })
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	var out strings.Builder
	err = sandbox.Check(t.Context(), sandbox.Config{
		Key: sim.APIKey(), Base: url, Clock: simulated{sim}, Name: "t1", Out: &out, HTTP: &http.Client{Transport: transport},
		Lag: 10 * time.Second, Poll: 10 * time.Millisecond,
	})
	require.NotContains(t, out.String(), sim.APIKey())
	return out.String(), err
}

// Everything that is tried works at the simulator, which knows Stripe's documents; only the answers are Stripe's to give.
func TestTheCheckPassesAtTheSimulator(t *testing.T) {
	t.Parallel()
	out, err := check(t, stripesim.New(stripesim.Config{Start: time.Now()}))
	require.NoError(t, err, out)
	require.Equal(t, 12, strings.Count(out, "seen:"), out)
	require.Contains(t, out, "with 750 units")
	require.Contains(t, out, "What was made is archived.")
	t.Log(out)
}

// What differs is said, and what was made goes all the same.
func TestADifferenceIsTold(t *testing.T) {
	t.Parallel()
	sim := stripesim.New(stripesim.Config{Start: time.Now()})
	sim.Faults().Inject(stripesim.Match{Path: "/v2/core/events/.*"}, stripesim.Forbidden())
	out, err := check(t, sim)
	require.ErrorIs(t, err, sandbox.ErrDiffers, out)
	require.Contains(t, out, "DIFFERS:  it is answered 403")
	require.Contains(t, out, "What was made is archived.")
}

func TestALiveKeyIsRefused(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"sk_live_1", "rk_live_1", "pk_test_1", ""} {
		err := sandbox.Check(t.Context(), sandbox.Config{Key: key, Base: "http://127.0.0.1:1"})
		require.ErrorContains(t, err, "not one of a test account", key)
	}
}
