package admin_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What was previewed for the period under way is done there, even when the next one has begun meanwhile.
func TestAnAdjustmentStaysInThePeriodOfItsForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.use("acme", 10) // the default plan: a calendar month
	v := w.signedIn("Ann")
	path := "/admin/accounts/acme/do/adjust"
	in := v.fill(path, "feature", "events", "at", underWay, "way", "refund", "units", "4")
	require.Equal(t, http.StatusOK, v.post(path, in).status)
	now := w.sim.Now()
	w.advance(time.Date(now.Year(), now.Month()+1, 1, 0, 0, 30, 0, time.UTC), 31*24*time.Hour)
	w.use("acme", 5)
	in.Set("step", "do")
	a := v.post(path, in)
	require.Equal(t, http.StatusSeeOther, a.status, a.body)
	var of, units int64
	require.NoError(t, w.db.QueryRow(t.Context(), "SELECT key, units FROM weir.adjustments").Scan(&of, &units))
	require.Equal(t, []int64{key, -4}, []int64{of, units})
}
