package warnings_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/usagetest"
	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/warnings"
)

// While nothing is refused the customer gets no mail, for it would say that it is; the host is told, with a word on it.
func TestInShadowModeTheHostIsToldAndTheCustomerIsNot(t *testing.T) {
	t.Parallel()
	for name, plan := range map[string]bool{"by account": false, "by plan": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, r := newWorld(t), newReceiver(t)
			m, err := warnings.NewMail(warnings.MailConfig{Server: "smtp://127.0.0.1:1?tls=off", From: "billing@example.com"})
			require.NoError(t, err)
			c := w.courier(warnings.Config{Webhook: r.hook(t), Mail: m})
			w.use("acme", 100)
			require.NoError(t, usage.SetContact(t.Context(), w.db, "acme", "ops@acme.example", "test", noon))
			if plan {
				usagetest.Publish(t, w.db, "shadow: true"+planFile, noon)
			} else {
				id, err := usage.FindAccount(t.Context(), w.db, "acme", false, noon)
				require.NoError(t, err)
				require.NoError(t, usage.SetShadow(t.Context(), w.db, id, true))
			}
			require.NoError(t, c.Deliver(t.Context()), "the mail server, which is not there, is not called")
			require.Equal(t, "email skipped 1, webhook sent 1", w.states())
			var note string
			require.NoError(t, w.db.QueryRow(t.Context(), "SELECT note FROM weir.warning_sends WHERE channel = 'email'").Scan(&note))
			require.Contains(t, note, "shadow mode")
			got := r.take()
			require.Len(t, got, 1)
			var body struct{ Data map[string]any }
			require.NoError(t, json.Unmarshal(got[0].body, &body))
			require.Equal(t, true, body.Data["shadow"])
		})
	}
}
