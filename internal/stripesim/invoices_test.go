package stripesim_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/stripesim"
)

// Facts 2.6: graduated tiers show one line per tier.
func TestTieredPrices(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	product, m := k.product(), k.meter("calls")
	tiers := []*stripe.PriceTierParams{
		{UpTo: stripe.Int64(1000), UnitAmountDecimal: stripe.Float64(0)},
		{UpTo: stripe.Int64(2000), UnitAmountDecimal: stripe.Float64(0.5)},
		{UpToInf: stripe.Bool(true), UnitAmountDecimal: stripe.Float64(0.25), FlatAmount: stripe.Int64(100)},
	}
	rec := &stripe.PriceRecurringParams{Interval: stripe.String("month"), UsageType: stripe.String("metered"), Meter: stripe.String(m)}
	customers := map[string]string{}
	prices := map[string]string{}
	for _, mode := range []string{"graduated", "volume"} {
		prices[mode] = k.price(product, stripe.PriceParams{BillingScheme: stripe.String("tiered"), TiersMode: stripe.String(mode), Tiers: tiers, Recurring: rec})
		customers[mode] = k.customer()
		k.subscribe(customers[mode], prices[mode])
		k.send("calls", customers[mode], 2400, k.sim.Now(), "")
	}
	k.advance(date("2026-02-01T01:00:00Z"))
	got := map[string][][2]int64{}
	for mode, cus := range customers {
		for _, l := range last(k, cus).Lines {
			got[mode] = append(got[mode], [2]int64{l.Quantity, l.Amount})
		}
	}
	require.Equal(t, map[string][][2]int64{"graduated": {{1000, 0}, {1000, 500}, {400, 200}}, "volume": {{2400, 700}}}, got)

	p, err := k.api.Prices.Get(prices["graduated"], nil)
	require.NoError(t, err)
	require.Empty(t, p.Tiers)
	require.Equal(t, stripe.PriceTiersModeGraduated, p.TiersMode)
	q := &stripe.PriceParams{}
	q.AddExpand("tiers")
	p, err = k.api.Prices.Get(prices["graduated"], q)
	require.NoError(t, err)
	require.Len(t, p.Tiers, 3)
	require.EqualValues(t, 0, p.Tiers[2].UpTo)
}

// Facts 2.4: transform_quantity applies to the period's total.
func TestTransformQuantity(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	product, m := k.product(), k.meter("calls")
	want := map[string]int64{"up": 120, "down": 80}
	customers := map[string]string{}
	for round := range want {
		price := k.price(product, stripe.PriceParams{
			UnitAmount: stripe.Int64(40), TransformQuantity: &stripe.PriceTransformQuantityParams{DivideBy: stripe.Int64(1000), Round: stripe.String(round)},
			Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("month"), UsageType: stripe.String("metered"), Meter: stripe.String(m)},
		})
		customers[round] = k.customer()
		k.subscribe(customers[round], price)
		for range 5 {
			k.send("calls", customers[round], 501, k.sim.Now(), "")
		}
	}
	k.advance(date("2026-02-01T01:00:00Z"))
	for round, amount := range want {
		require.Equal(t, amount, last(k, customers[round]).Total, round)
	}
}

// Billing rule 8's tools: an invoice item on a draft, with a period, price data,
// fractions of a cent and metadata.
func TestInvoiceItemOnADraft(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	begin, end := at(p.sub.CurrentPeriodStart), at(p.sub.CurrentPeriodEnd)
	k.advance(end)
	draft := last(k, p.customer)
	item := &stripe.InvoiceItemParams{
		Customer: stripe.String(p.customer), Invoice: stripe.String(draft.ID), Subscription: stripe.String(p.sub.ID), Quantity: stripe.Int64(1500),
		PriceData: &stripe.InvoiceItemPriceDataParams{Product: stripe.String(p.product), Currency: stripe.String("usd"), UnitAmountDecimal: stripe.Float64(0.04)},
		Period:    &stripe.InvoiceItemPeriodParams{Start: stripe.Int64(begin.Unix()), End: stripe.Int64(end.Unix())},
		Metadata:  map[string]string{"weir_id": "w1"},
	}
	ii, err := k.api.InvoiceItems.New(item)
	require.NoError(t, err)
	require.EqualValues(t, 60, ii.Amount)
	require.Equal(t, draft.ID, ii.Invoice.ID)
	k.advance(end.Add(time.Hour))
	final, err := k.api.Invoices.Get(draft.ID, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1060, final.Total)
	found := final.Lines.Data[len(final.Lines.Data)-1]
	require.Equal(t, "w1", found.Metadata["weir_id"])
	require.EqualValues(t, 1500, found.Quantity)
	require.Equal(t, begin, at(found.Period.Start))
	require.Equal(t, stripe.InvoiceLineItemTypeInvoiceItem, found.Type)
	require.Equal(t, ii.ID, found.InvoiceItem.ID)

	_, err = k.api.InvoiceItems.New(item)
	e := refused(t, err, 400)
	require.Equal(t, stripe.ErrorCodeInvoiceNotEditable, e.Code)

	list := k.api.InvoiceItems.List(&stripe.InvoiceItemListParams{Customer: stripe.String(p.customer), Pending: stripe.Bool(false)})
	require.True(t, list.Next())
	require.Equal(t, "w1", list.InvoiceItem().Metadata["weir_id"])
	require.False(t, list.Next())
}

// Facts 2.7: a pending item waits for an invoice of its currency.
func TestPendingItemsWaitForTheirCurrency(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	for _, currency := range []string{"eur", "usd"} {
		_, err := k.api.InvoiceItems.New(&stripe.InvoiceItemParams{Customer: stripe.String(p.customer), Currency: stripe.String(currency), Amount: stripe.Int64(500)})
		require.NoError(t, err)
	}
	k.advance(at(p.sub.CurrentPeriodEnd).Add(time.Hour))
	require.EqualValues(t, 1500, last(k, p.customer).Total)
	list := k.api.InvoiceItems.List(&stripe.InvoiceItemListParams{Customer: stripe.String(p.customer), Pending: stripe.Bool(true)})
	require.True(t, list.Next())
	require.Equal(t, stripe.Currency("eur"), list.InvoiceItem().Currency)
	_, err := k.api.InvoiceItems.Del(list.InvoiceItem().ID, nil)
	require.NoError(t, err)
	require.False(t, k.api.InvoiceItems.List(&stripe.InvoiceItemListParams{Customer: stripe.String(p.customer), Pending: stripe.Bool(true)}).Next())
}

func TestManualInvoice(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	cus := k.customer()
	inv, err := k.api.Invoices.New(&stripe.InvoiceParams{Customer: stripe.String(cus), Currency: stripe.String("usd"), AutoAdvance: stripe.Bool(true)})
	require.NoError(t, err)
	require.Equal(t, k.sim.Now().Add(time.Hour), at(inv.AutomaticallyFinalizesAt))
	_, err = k.api.InvoiceItems.New(&stripe.InvoiceItemParams{Customer: stripe.String(cus), Invoice: stripe.String(inv.ID), UnitAmountDecimal: stripe.Float64(0.5), Quantity: stripe.Int64(7), Currency: stripe.String("usd")})
	require.NoError(t, err)
	k.advance(k.sim.Now().Add(time.Hour))
	require.Equal(t, "paid", last(k, cus).Status)
	require.EqualValues(t, 4, last(k, cus).Total, "3.5 rounds half up")

	stays, err := k.api.Invoices.New(&stripe.InvoiceParams{Customer: stripe.String(cus)})
	require.NoError(t, err)
	require.Zero(t, stays.AutomaticallyFinalizesAt)
	k.advance(k.sim.Now().AddDate(0, 1, 0))
	require.Equal(t, "draft", last(k, cus).Status, "without auto_advance a draft stays one for ever")
	_, err = k.api.Invoices.Del(stays.ID, nil)
	require.NoError(t, err)
	_, err = k.api.Invoices.Get(stays.ID, nil)
	refused(t, err, http.StatusNotFound)
}

// Facts 2.1 and 2.7: the deadline may be hidden, switched off, or set.
func TestFinalizationDeadline(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{HideDeadline: true, GracePeriod: 48 * time.Hour})
	p := k.plan("calls")
	end := at(p.sub.CurrentPeriodEnd)
	k.advance(end)
	inv := last(k, p.customer)
	require.Equal(t, end.Add(48*time.Hour), inv.FinalizesAt)
	got, err := k.api.Invoices.Get(inv.ID, nil)
	require.NoError(t, err)
	require.Zero(t, got.AutomaticallyFinalizesAt)
	require.True(t, got.AutoAdvance)

	_, err = k.api.Invoices.Update(inv.ID, &stripe.InvoiceParams{AutoAdvance: stripe.Bool(false)})
	require.NoError(t, err)
	k.advance(end.Add(60 * time.Hour))
	require.Equal(t, "draft", last(k, p.customer).Status)
	_, err = k.api.Invoices.Update(inv.ID, &stripe.InvoiceParams{AutoAdvance: stripe.Bool(true)})
	require.NoError(t, err)
	set := &stripe.InvoiceParams{}
	set.AddExtra("automatically_finalizes_at", strconv.FormatInt(end.Add(70*time.Hour).Unix(), 10))
	_, err = k.api.Invoices.Update(inv.ID, set)
	require.Equal(t, stripe.ErrorCodeParameterUnknown, refused(t, err, 400).Code, "not before 2024-10-28.acacia")
	set.Headers = http.Header{"Stripe-Version": {"2024-10-28.acacia"}}
	_, err = k.api.Invoices.Update(inv.ID, set)
	require.NoError(t, err)
	k.advance(end.Add(70*time.Hour - time.Second))
	require.Equal(t, "draft", last(k, p.customer).Status)
	k.advance(end.Add(70 * time.Hour))
	require.Equal(t, "paid", last(k, p.customer).Status)
}

func TestFinalizeVoidAndWriteOff(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	k.sim.DeclinePayments(p.customer, true)
	k.send("calls", p.customer, 100, k.sim.Now(), "")
	k.advance(at(p.sub.CurrentPeriodEnd))
	draft := last(k, p.customer)
	_, err := k.api.Invoices.VoidInvoice(draft.ID, nil)
	refused(t, err, 400)
	open, err := k.api.Invoices.FinalizeInvoice(draft.ID, nil)
	require.NoError(t, err)
	require.Equal(t, stripe.InvoiceStatusOpen, open.Status)
	require.NotEmpty(t, open.Number)
	_, err = k.api.Invoices.FinalizeInvoice(draft.ID, nil)
	refused(t, err, 400)
	off, err := k.api.Invoices.MarkUncollectible(draft.ID, nil)
	require.NoError(t, err)
	require.Equal(t, stripe.InvoiceStatusUncollectible, off.Status)
	void, err := k.api.Invoices.VoidInvoice(draft.ID, nil)
	require.NoError(t, err)
	require.Equal(t, stripe.InvoiceStatusVoid, void.Status)
	require.Zero(t, void.AmountRemaining)
	require.Contains(t, eventTypes(k), "invoice.voided")
}

// Billing rule 8: a credit note on a metered line, by quantity.
func TestCreditNote(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	k.send("calls", p.customer, 10000, k.sim.Now(), "")
	k.advance(at(p.sub.CurrentPeriodEnd))
	inv := last(k, p.customer)
	line := usageLine(t, inv)
	note := func(quantity int64) *stripe.CreditNoteParams {
		return &stripe.CreditNoteParams{
			Invoice: stripe.String(inv.ID), Reason: stripe.String("order_change"), Metadata: map[string]string{"weir_id": "w1"},
			Lines: []*stripe.CreditNoteLineParams{{Type: stripe.String("invoice_line_item"), InvoiceLineItem: stripe.String(line.ID), Quantity: stripe.Int64(quantity)}},
		}
	}
	_, err := k.api.CreditNotes.New(note(2500))
	require.Contains(t, refused(t, err, 400).Msg, "draft")
	k.advance(at(p.sub.CurrentPeriodEnd).Add(time.Hour))

	_, err = k.api.CreditNotes.New(note(2500))
	require.Contains(t, refused(t, err, 400).Msg, "must equal", "a paid invoice says where the money goes")
	paid := note(2500)
	paid.CreditAmount = stripe.Int64(100)
	cn, err := k.api.CreditNotes.New(paid)
	require.NoError(t, err)
	require.EqualValues(t, 100, cn.Total)
	require.Equal(t, stripe.CreditNoteTypePostPayment, cn.Type)
	require.EqualValues(t, 2500, cn.Lines.Data[0].Quantity)
	require.Equal(t, line.ID, cn.Lines.Data[0].InvoiceLineItem)
	paid = note(8000)
	paid.CreditAmount = stripe.Int64(320)
	_, err = k.api.CreditNotes.New(paid)
	require.Contains(t, refused(t, err, 400).Msg, "left to credit")

	got, err := k.api.Invoices.Get(inv.ID, nil)
	require.NoError(t, err)
	require.EqualValues(t, 100, got.PostPaymentCreditNotesAmount)
	list := k.api.CreditNotes.List(&stripe.CreditNoteListParams{Invoice: stripe.String(inv.ID)})
	require.True(t, list.Next())
	require.Equal(t, "w1", list.CreditNote().Metadata["weir_id"])
}

func TestCreditNoteOnAnOpenInvoiceLowersItsAmount(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.plan("calls")
	k.sim.DeclinePayments(p.customer, true)
	k.advance(at(p.sub.CurrentPeriodEnd).Add(time.Hour))
	inv := last(k, p.customer)
	cn, err := k.api.CreditNotes.New(&stripe.CreditNoteParams{Invoice: stripe.String(inv.ID), Amount: stripe.Int64(400)})
	require.NoError(t, err)
	require.Equal(t, stripe.CreditNoteTypePrePayment, cn.Type)
	got, err := k.api.Invoices.Get(inv.ID, nil)
	require.NoError(t, err)
	require.EqualValues(t, 600, got.AmountRemaining)
	require.EqualValues(t, 1000, got.Total)
	_, err = k.api.CreditNotes.New(&stripe.CreditNoteParams{Invoice: stripe.String(inv.ID), Amount: stripe.Int64(601)})
	refused(t, err, 400)
	_, err = k.api.CreditNotes.New(&stripe.CreditNoteParams{Invoice: stripe.String(inv.ID), Amount: stripe.Int64(600)})
	require.NoError(t, err)
	require.Equal(t, "paid", last(k, p.customer).Status)
}

// Facts 6: embedded lists have ten entries at most; the rest is behind a page.
func TestInvoiceLinesAndItemsPage(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	product, cus := k.product(), k.customer()
	var prices []string
	for i := range 15 {
		prices = append(prices, k.licensed(product, int64(i+1)))
	}
	sub := k.subscribe(cus, prices...)
	require.Len(t, sub.Items.Data, 10)
	require.True(t, sub.Items.HasMore)
	seen := 0
	ip := &stripe.SubscriptionItemListParams{Subscription: stripe.String(sub.ID)}
	ip.Limit = stripe.Int64(4)
	for it := k.api.SubscriptionItems.List(ip); it.Next(); seen++ {
		require.Equal(t, prices[seen], it.SubscriptionItem().Price.ID)
	}
	require.Equal(t, 15, seen)

	inv, err := lastInvoice(k, sub.ID)
	require.NoError(t, err)
	require.Len(t, inv.Lines.Data, 10)
	require.True(t, inv.Lines.HasMore)
	lp := &stripe.InvoiceListLinesParams{Invoice: stripe.String(inv.ID)}
	lp.Limit = stripe.Int64(4)
	var sum int64
	for it := k.api.Invoices.ListLines(lp); it.Next(); {
		sum += it.InvoiceLineItem().Amount
	}
	require.Equal(t, inv.Total, sum)
}

func TestInvoiceFilters(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	one, two := k.plan("calls"), k.plan("bytes")
	k.advance(at(one.sub.CurrentPeriodEnd))
	count := func(p *stripe.InvoiceListParams) (n int) {
		for it := k.api.Invoices.List(p); it.Next(); n++ {
		}
		return n
	}
	require.Equal(t, 4, count(&stripe.InvoiceListParams{}))
	require.Equal(t, 2, count(&stripe.InvoiceListParams{Customer: stripe.String(one.customer)}))
	require.Equal(t, 1, count(&stripe.InvoiceListParams{Subscription: stripe.String(two.sub.ID), Status: stripe.String("draft")}))
	require.Equal(t, 2, count(&stripe.InvoiceListParams{CreatedRange: &stripe.RangeQueryParams{GreaterThan: one.sub.CurrentPeriodStart}}))
}

// send_invoice leaves the final invoice open.
func TestSendInvoice(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{})
	p := k.catalog("calls")
	_, err := k.api.Subscriptions.New(&stripe.SubscriptionParams{
		Customer: stripe.String(p.customer), Items: items(p.base), CollectionMethod: stripe.String("send_invoice"), DaysUntilDue: stripe.Int64(30),
	})
	require.NoError(t, err)
	require.Equal(t, "draft", last(k, p.customer).Status)
	k.advance(k.sim.Now().Add(time.Hour))
	require.Equal(t, "open", last(k, p.customer).Status)
	got, err := k.api.Invoices.Get(last(k, p.customer).ID, nil)
	require.NoError(t, err)
	require.Equal(t, k.sim.Now().AddDate(0, 0, 30), at(got.DueDate))
}
