package billingtest

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/usagetest"
)

// Work does everything that a worker would find due, until nothing is.
func Work(t testing.TB, db *pgxpool.Pool, b *billing.Biller) {
	t.Helper()
	usagetest.Fold(t, db)
	for range 50 {
		synced, err := b.SyncDue(t.Context(), 100)
		require.NoError(t, err)
		_, err = b.Close(t.Context())
		require.NoError(t, err)
		require.NoError(t, b.Report(t.Context()))
		read, err := b.ReadDueInvoices(t.Context(), 100)
		require.NoError(t, err)
		if synced == 0 && read == 0 {
			return
		}
	}
	require.FailNow(t, "there is always more to do")
}

// InSteps moves the clock to an instant in steps, and does what happens after each.
func (s *Stripe) InSteps(to time.Time, step time.Duration, each func()) {
	s.t.Helper()
	for now := s.Now(); now.Before(to); now = s.Now() {
		next := now.Add(step)
		if next.After(to) {
			next = to
		}
		require.NoError(s.t, s.Server.Advance(s.t.Context(), next))
		each()
	}
}
