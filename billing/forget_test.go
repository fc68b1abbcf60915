package billing_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/usage"
)

// What Stripe told of a forgotten person is gone, and does not come back with the deletion of the customer.
func TestNothingThatStripeToldOfAForgottenAccountStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, setup{})
	p := &stripe.SubscriptionParams{Customer: stripe.String(w.customer("")), Items: []*stripe.SubscriptionItemsParams{
		{Price: stripe.String(w.price("pro_monthly"))}, {Price: stripe.String(w.price("usage"))},
	}}
	p.AddMetadata("account_id", "planted@example.com")
	sub, err := w.api.Subscriptions.New(p)
	require.NoError(t, err)
	w.soon()
	told := func(table string) int64 {
		return w.number("SELECT count(*) FROM weir." + table + " x WHERE x::text LIKE '%planted%'")
	}
	require.EqualValues(t, 1, told("accounts"))
	require.Zero(t, told("subscriptions"), "metadata is not kept")
	require.Positive(t, told("webhook_events"))
	w.exec("UPDATE weir.webhook_events SET state = 'stored'") // whatever became of them

	w.exec("SELECT weir.find('mapping_conflict', 'cus_other', NULL, 'customer cus_other is account \"planted@example.com\", too', now())")
	w.exec("UPDATE weir.accounts SET plan_until = $1", w.sim.Now().Add(-time.Second))
	by := usage.By{Actor: "ann", Way: usage.WayCLI, Reason: "request 12"}
	_, err = w.b.Do(t.Context(), &billing.Forget{Account: "planted@example.com"}, by)
	require.NoError(t, err)
	require.Zero(t, told("webhook_events"))
	require.Equal(t, "customer cus_other is account (forgotten), too", w.findings()["mapping_conflict"])
	for i, kind := range []string{"customer.updated", "customer.deleted", "customer.subscription.deleted"} {
		id := fmt.Sprintf("evt_late_%d", i)
		body := eventBody(id, kind, fmt.Sprintf(`{"id":%q,"object":"x","customer":%q,"email":"planted@example.com"}`, sub.Customer.ID, sub.Customer.ID))
		require.Equal(t, 200, w.post(body, w.sign(body, secret, 0)))
		require.EqualValues(t, 1, w.number("SELECT count(*) FROM weir.webhook_events WHERE event = $1", id))
	}
	w.work()
	for _, table := range []string{"accounts", "subscriptions", "webhook_events", "findings", "customers"} {
		require.Zero(t, told(table), table)
	}
}
