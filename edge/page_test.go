package edge_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var began = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// at brings an account to that much use of a million, with a month before.
func (w *world) at(account string, units int64) {
	w.Helper()
	w.subscribe(account, "pro", began)
	w.month(account, units, began, now)
	w.use(account, "exports", 143, now)
}

func TestThePageAtEachLevel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct {
		name  string
		units int64
		pill  string
		class string
		more  string
	}{
		{"79-percent", 790_000, "Within your plan", "ok", "of 1,000,000 requests included"},
		{"80-percent", 800_000, "80 % used", "near", "210,000"},
		{"100-percent", 1_000_000, "All included units used", "over", "All 1,000,000 requests are used"},
		{"overage", 1_204_000, "In overage", "over", "$81.60"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.at(c.name, c.units)
			b := open(t, 1100, 1000)
			b.loadLive(w.link(c.name))
			b.shoot(c.name)
			require.Equal(t, c.pill, b.text("#live-f0 .pill"))
			b.quiet()
		})
	}
}
