package stripesim_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/stripesim"
)

func TestPricesByLookupKey(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	product, m := k.product(), k.meter("calls")
	base := k.price(product, stripe.PriceParams{UnitAmount: stripe.Int64(1000), LookupKey: stripe.String("pro"), Metadata: map[string]string{"included": "1000000"}})
	usage := k.price(product, stripe.PriceParams{
		UnitAmountDecimal: stripe.Float64(0.04), LookupKey: stripe.String("pro_overage"),
		Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("month"), UsageType: stripe.String("metered"), Meter: stripe.String(m)},
	})
	k.licensed(product, 5)
	found := map[string]*stripe.Price{}
	for it := k.api.Prices.List(&stripe.PriceListParams{LookupKeys: stripe.StringSlice([]string{"pro", "pro_overage", "none"})}); it.Next(); {
		found[it.Price().LookupKey] = it.Price()
	}
	require.Len(t, found, 2)
	require.Equal(t, base, found["pro"].ID)
	require.Equal(t, "1000000", found["pro"].Metadata["included"])
	require.Equal(t, usage, found["pro_overage"].ID)
	require.Equal(t, m, found["pro_overage"].Recurring.Meter)
	require.InDelta(t, 0.04, found["pro_overage"].UnitAmountDecimal, 1e-12)
	require.Zero(t, found["pro_overage"].UnitAmount)

	_, err := k.api.Prices.New(&stripe.PriceParams{
		Product: stripe.String(product), Currency: stripe.String("usd"), UnitAmount: stripe.Int64(2000), LookupKey: stripe.String("pro"),
		Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("month")},
	})
	refused(t, err, 400)
	moved := k.price(product, stripe.PriceParams{UnitAmount: stripe.Int64(2000), LookupKey: stripe.String("pro"), TransferLookupKey: stripe.Bool(true)})
	it := k.api.Prices.List(&stripe.PriceListParams{LookupKeys: stripe.StringSlice([]string{"pro"})})
	require.True(t, it.Next())
	require.Equal(t, moved, it.Price().ID)
	require.False(t, it.Next())
}

// Facts 4: product and price changes have events of their own, and no
// subscription event.
func TestArchivingPricesAndProducts(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	_, err := k.api.Prices.Update(p.base, &stripe.PriceParams{Active: stripe.Bool(false), Metadata: map[string]string{"included": "5"}})
	require.NoError(t, err)
	_, err = k.api.Products.Update(p.product, &stripe.ProductParams{Active: stripe.Bool(false), Name: stripe.String("Old")})
	require.NoError(t, err)
	require.Equal(t, []string{"product.updated", "price.updated"}, eventTypes(k)[:2])
	sub := k.subscription(p.sub.ID)
	require.False(t, sub.Items.Data[0].Price.Active)
	_, err = k.api.Products.Del(p.product, nil)
	refused(t, err, 400)
	_, err = k.api.Products.Del(k.product(), nil)
	require.NoError(t, err)
	require.Equal(t, "product.deleted", eventTypes(k)[0])
	k.advance(at(sub.CurrentPeriodEnd).Add(time.Hour))
	require.EqualValues(t, 1000, last(k, p.customer).Total, "existing subscriptions keep an archived price")
}

// Facts 3: legacy metered prices end with basil.
func TestRefusedPrices(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	product, m := k.product(), k.meter("calls")
	legacy := func(version string) (*stripe.Price, error) {
		p := &stripe.PriceParams{
			Product: stripe.String(product), Currency: stripe.String("usd"), UnitAmount: stripe.Int64(1),
			Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("month"), UsageType: stripe.String("metered")},
		}
		p.Headers = http.Header{"Stripe-Version": {version}}
		return k.api.Prices.New(p)
	}
	old, err := legacy("2024-06-20")
	require.NoError(t, err)
	require.Empty(t, old.Recurring.Meter)
	_, err = legacy(basil)
	refused(t, err, 400)

	bad := &stripe.PriceParams{Product: stripe.String(product), Currency: stripe.String("usd"), Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("month")}}
	bad.AddExtra("unit_amount_decimal", "0.0000000000001")
	_, err = k.api.Prices.New(bad)
	require.Contains(t, refused(t, err, 400).Msg, "12 decimal places")
	_, err = k.api.BillingMeters.Deactivate(m, nil)
	require.NoError(t, err)
	_, err = k.api.Prices.New(&stripe.PriceParams{
		Product: stripe.String(product), Currency: stripe.String("usd"), UnitAmount: stripe.Int64(1),
		Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("month"), UsageType: stripe.String("metered"), Meter: stripe.String(m)},
	})
	require.Contains(t, refused(t, err, 400).Msg, "inactive", "facts 1.5")
}

func TestListsPageThroughEverything(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.catalog("calls")
	var want []string
	for range 25 {
		want = append([]string{k.subscribe(p.customer, p.base).ID}, want...)
	}
	for _, limit := range []int64{1, 7, 100} {
		var got []string
		list := &stripe.SubscriptionListParams{Customer: stripe.String(p.customer)}
		list.Limit = stripe.Int64(limit)
		for it := k.api.Subscriptions.List(list); it.Next(); {
			got = append(got, it.Subscription().ID)
		}
		require.Equal(t, want, got)
	}
	back := &stripe.SubscriptionListParams{}
	back.EndingBefore, back.Limit, back.Single = stripe.String(want[10]), stripe.Int64(3), true
	it := k.api.Subscriptions.List(back)
	var got []string
	for it.Next() {
		got = append(got, it.Subscription().ID)
	}
	require.ElementsMatch(t, want[7:10], got)
	for _, limit := range []int64{0, 101} {
		list := &stripe.CustomerListParams{}
		list.Limit = stripe.Int64(limit)
		bad := k.api.Customers.List(list)
		require.False(t, bad.Next())
		refused(t, bad.Err(), 400)
	}
}

func TestExpand(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	q := &stripe.SubscriptionParams{}
	q.AddExpand("latest_invoice")
	q.AddExpand("customer")
	q.AddExpand("items.data.price.product")
	sub, err := k.api.Subscriptions.Get(p.sub.ID, q)
	require.NoError(t, err)
	require.Equal(t, stripe.InvoiceStatusPaid, sub.LatestInvoice.Status)
	require.Equal(t, "API calls", sub.Items.Data[0].Price.Product.Name)
	list := &stripe.SubscriptionListParams{}
	list.AddExpand("data.customer")
	it := k.api.Subscriptions.List(list)
	require.True(t, it.Next())
	require.NotZero(t, it.Subscription().Customer.Created)
	q = &stripe.SubscriptionParams{}
	q.AddExpand("nonsense")
	_, err = k.api.Subscriptions.Get(p.sub.ID, q)
	refused(t, err, 400)
}

func TestCustomers(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	c, err := k.api.Customers.New(&stripe.CustomerParams{Email: stripe.String("a@example.com"), Metadata: map[string]string{"a": "1", "b": "2"}})
	require.NoError(t, err)
	got, err := k.api.Customers.Update(c.ID, &stripe.CustomerParams{Name: stripe.String("Ann"), Metadata: map[string]string{"a": "", "c": "3"}})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"b": "2", "c": "3"}, got.Metadata)
	require.Equal(t, "a@example.com", got.Email)
	require.Equal(t, "Ann", got.Name)
	it := k.api.Customers.List(&stripe.CustomerListParams{Email: stripe.String("a@example.com")})
	require.True(t, it.Next())
	require.Equal(t, c.ID, it.Customer().ID)
	_, err = k.api.Customers.Get("cus_none", nil)
	refused(t, err, http.StatusNotFound)
}

// Facts 3: endpoints are made with their own version; the secret shows once.
func TestWebhookEndpoints(t *testing.T) {
	t.Parallel()
	rec := listen(t)
	k := start(t, stripesim.Config{DefaultVersion: "2025-09-30.clover"})
	we, err := k.api.WebhookEndpoints.New(&stripe.WebhookEndpointParams{
		URL: stripe.String(rec.url), EnabledEvents: stripe.StringSlice([]string{"customer.created"}), APIVersion: stripe.String("2024-06-20"),
	})
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(we.Secret, "whsec_"))
	again, err := k.api.WebhookEndpoints.Get(we.ID, nil)
	require.NoError(t, err)
	require.Empty(t, again.Secret)
	require.Equal(t, "2024-06-20", again.APIVersion)

	k.customer()
	k.advance(k.sim.Now())
	require.Equal(t, "2024-06-20", parse(t, rec.all()[0], we.Secret).APIVersion)
	_, err = k.api.WebhookEndpoints.Update(we.ID, &stripe.WebhookEndpointParams{Disabled: stripe.Bool(true)})
	require.NoError(t, err)
	k.customer()
	k.advance(k.sim.Now())
	require.Len(t, rec.all(), 1)
	it := k.api.Events.List(&stripe.EventListParams{})
	require.True(t, it.Next())
	require.Equal(t, "2025-09-30.clover", it.Event().APIVersion, "fetching shows the account's version")

	list := k.api.WebhookEndpoints.List(&stripe.WebhookEndpointListParams{})
	require.True(t, list.Next())
	require.Equal(t, "disabled", list.WebhookEndpoint().Status)
	_, err = k.api.WebhookEndpoints.Del(we.ID, nil)
	require.NoError(t, err)
	require.False(t, k.api.WebhookEndpoints.List(&stripe.WebhookEndpointListParams{}).Next())
	_, err = k.api.WebhookEndpoints.New(&stripe.WebhookEndpointParams{URL: stripe.String("nonsense"), EnabledEvents: stripe.StringSlice([]string{"*"})})
	refused(t, err, 400)
}

func TestCheckoutAccountAndOtherEvents(t *testing.T) {
	t.Parallel()
	rec := listen(t)
	k := start(t, stripesim.Config{APIKey: "sk_live_1", Webhooks: []stripesim.Webhook{{URL: rec.url, Secret: "s", Events: []string{"checkout.session.completed", "invoice.upcoming"}}}})
	p := k.plan("calls")
	id := k.sim.CompleteCheckout(stripesim.CheckoutSession{Customer: p.customer, Subscription: p.sub.ID, ClientReferenceID: "acct-7"})
	k.sim.Emit("invoice.upcoming", map[string]any{"object": "invoice", "customer": p.customer})
	k.advance(k.sim.Now())
	require.Equal(t, []string{"checkout.session.completed", "invoice.upcoming"}, types(t, rec, "s"))
	e := parse(t, rec.all()[0], "s")
	require.True(t, e.Livemode)
	var session stripe.CheckoutSession
	require.NoError(t, json.Unmarshal(e.Data.Raw, &session))
	require.Equal(t, "acct-7", session.ClientReferenceID)
	require.Equal(t, p.sub.ID, session.Subscription.ID)
	got, err := k.api.CheckoutSessions.Get(id, nil)
	require.NoError(t, err)
	require.Equal(t, stripe.CheckoutSessionModeSubscription, got.Mode)
	account, err := k.api.Accounts.Get()
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(account.ID, "acct_"))
}
