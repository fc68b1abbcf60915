package billing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/stripesim"
)

// Stripe remembers an identifier for 24 hours. A clock that is set back, at the first attempt or later, stretches the 23
// hours in which a report is sent again by nothing.
func TestAClockThatIsSetBackStretchesNothing(t *testing.T) {
	t.Parallel()
	type try struct {
		real, ahead time.Duration // since the first attempt, and by how much the clock is ahead
		sent        bool
	}
	for name, tries := range map[string][]try{
		"it is right":                   {{0, 0, true}, {22 * time.Hour, 0, true}, {24 * time.Hour, 0, false}},
		"it was ahead at the first one": {{0, 2 * time.Hour, true}, {time.Minute, 0, true}, {22 * time.Hour, 0, true}, {24 * time.Hour, 0, false}},
		"it was set back in the end":    {{0, 0, true}, {22 * time.Hour, 0, true}, {22*time.Hour + time.Minute, -2 * time.Hour, true}, {24 * time.Hour, -2 * time.Hour, false}},
		"it was set back twice":         {{0, 4 * time.Hour, true}, {time.Minute, 2 * time.Hour, true}, {2 * time.Minute, 0, true}, {22 * time.Hour, 0, true}, {23*time.Hour + 5*time.Minute, 0, false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setup{})
			w.over("acme", 40)
			w.sim.Faults().Inject(post(stripesim.Unavailable(503), 0))
			w.hour()
			w.exec("SELECT weir.replace_link(id, $1) FROM weir.reports", w.sim.Now())
			for i, c := range tries {
				w.exec("UPDATE weir.reports SET retry_at = '-infinity'; UPDATE weir.streams SET claimed_until = '-infinity'")
				now := w.sim.Now().Add(c.real + c.ahead)
				n := w.number("SELECT count(*) FROM weir.claim_reports($1, 10, interval '1 minute', NULL, false) c JOIN weir.reports r ON r.id = c.report AND NOT r.replaced", now)
				require.Equal(t, c.sent, n == 1, "try %d", i)
			}
		})
	}
}

// A clock that is found ahead of Stripe's dates no first attempt after the present.
func TestAFirstAttemptLiesNotInTheFuture(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	w.over("acme", 40)
	w.sim.Faults().Inject(post(stripesim.Unavailable(503), 0))
	w.hour()
	w.exec("UPDATE weir.reports SET first_sent = $1", w.sim.Now())
	require.NoError(t, w.b.NoteSkew(t.Context(), -2*time.Hour))
	require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.reports WHERE first_sent = $1", w.sim.Now().Add(-2*time.Hour)))
}
