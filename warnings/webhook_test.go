package warnings_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/warnings"
)

func TestAWarningIsPostedSignedAndOnce(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t), newReceiver(t)
	c := w.courier(warnings.Config{Webhook: r.hook(t)})
	require.NoError(t, c.Deliver(t.Context()), "nothing was found yet")
	require.Empty(t, r.take())
	w.use("acme", 85)
	due, err := c.Due(t.Context())
	require.NoError(t, err)
	require.True(t, due)
	var wg sync.WaitGroup
	for range 8 { // workers
		wg.Go(func() {
			if err := c.Deliver(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got := r.take()
	require.Len(t, got, 1)
	verify(t, got[0])
	var body struct {
		Type string
		Data map[string]any
	}
	require.NoError(t, json.Unmarshal(got[0].body, &body))
	require.Equal(t, "usage.warning", body.Type)
	require.Equal(t, map[string]any{
		"account": "acme", "feature": "events", "plan": "free", "threshold": 80., "allowance": 100., "used": 85., "included": 100., "spending_cap": false,
		"on_exceeded": "block", "overage_open": false, "shadow": false, "period_start": "2026-03-01T00:00:00Z", "resets_at": "2026-04-01T00:00:00Z", "at": "2026-03-10T12:00:00Z",
		"upgrade_url": "https://example.com/upgrade",
	}, body.Data)
	require.Equal(t, "webhook sent 1", w.states())
	due, err = c.Due(t.Context())
	require.NoError(t, err)
	require.False(t, due)
}

func TestADeliveryThatFailsIsTriedAgainUnderTheSameID(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t), newReceiver(t)
	c := w.courier(warnings.Config{Webhook: r.hook(t)})
	w.use("acme", 100)
	var ids []string
	for i, status := range []int{http.StatusInternalServerError, http.StatusFound, http.StatusTooManyRequests} {
		r.answer(status)
		require.ErrorContains(t, c.Deliver(t.Context()), http.StatusText(status))
		got := r.take()
		require.Len(t, got, 1, "a redirect is not followed")
		ids = append(ids, got[0].header.Get("webhook-id"))
		require.Equal(t, []string{"webhook due 1", "webhook due 2", "webhook due 3"}[i], w.states())
		require.NoError(t, c.Deliver(t.Context()), "it waits")
		require.Empty(t, r.take())
		w.exec("UPDATE weir.warning_sends SET due_at = '-infinity'")
	}
	r.answer(http.StatusOK)
	require.NoError(t, c.Deliver(t.Context()))
	got := r.take()
	require.Len(t, got, 1)
	verify(t, got[0])
	for _, id := range ids {
		require.Equal(t, got[0].header.Get("webhook-id"), id)
	}
	require.Equal(t, "webhook sent 4", w.states())
}

func TestAReceiverThatIsGoneIsLeftAlone(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t), newReceiver(t)
	c := w.courier(warnings.Config{Webhook: r.hook(t)})
	w.use("acme", 100)
	r.answer(http.StatusGone)
	require.NoError(t, c.Deliver(t.Context()))
	require.Equal(t, "webhook failed 1", w.states())
}

func TestOneReceiverThatFailsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w, r := newWorld(t), newReceiver(t)
	r.answer(http.StatusBadGateway)
	m, err := warnings.NewMail(warnings.MailConfig{Server: "smtp://127.0.0.1:1?tls=off", From: "billing@example.com"})
	require.NoError(t, err)
	c := w.courier(warnings.Config{Webhook: r.hook(t), Mail: m})
	w.use("acme", 100)
	require.Error(t, c.Deliver(t.Context()))
	require.Equal(t, "email skipped 1, webhook due 1", w.states(), "acme has no address")
}

func TestWithoutAChannelNothingIsClaimed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.courier(warnings.Config{})
	w.use("acme", 100)
	due, err := c.Due(t.Context())
	require.NoError(t, err)
	require.False(t, due)
	require.NoError(t, c.Deliver(t.Context()))
	require.Empty(t, w.states())
}

func TestWhatIsRefusedAsASetting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ address, secret string }{
		{"", secret}, {"ftp://example.com", secret}, {"https://example.com", ""}, {"https://example.com", "whsec_c2hvcnQ="}, {"https://example.com", "whsec_!"},
		{"https://example.com", "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23))},
	} {
		_, err := warnings.NewWebhook(c.address, c.secret)
		require.Error(t, err, c)
	}
	for _, c := range []warnings.MailConfig{
		{Server: "mail.example.com", From: "a@example.com"}, {Server: "http://mail.example.com", From: "a@example.com"},
		{Server: "smtp://mail.example.com:25?tls=off", From: "a@example.com"}, {Server: "smtp://mail.example.com:0", From: "a@example.com"},
		{Server: "smtp://mail.example.com", From: "nobody"}, {Server: "smtp://mail.example.com", From: "a@example.com\r\nBcc: b@example.com"},
	} {
		_, err := warnings.NewMail(c)
		require.Error(t, err, c)
	}
	_, err := warnings.New(warnings.Config{})
	require.Error(t, err)
}
