package stripesim_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/stripesim"
)

type window struct {
	start, end time.Time
	value      float64
}

func (k *kit) summaries(meter, customer string, from, to time.Time, group string) ([]window, error) {
	p := &stripe.BillingMeterEventSummaryListParams{
		ID: stripe.String(meter), Customer: stripe.String(customer), StartTime: stripe.Int64(from.Unix()), EndTime: stripe.Int64(to.Unix()),
	}
	if group != "" {
		p.ValueGroupingWindow = stripe.String(group)
	}
	p.Limit = stripe.Int64(2)
	it := k.api.BillingMeterEventSummaries.List(p)
	var out []window
	for it.Next() {
		one := it.BillingMeterEventSummary()
		out = append(out, window{at(one.StartTime), at(one.EndTime), one.AggregatedValue})
	}
	return out, it.Err()
}

// Facts 1.7: start inclusive, end exclusive, minute-aligned.
func TestSummaryOfARange(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{Start: date("2026-03-10T12:00:00Z")})
	cus, m := k.customer(), k.meter("calls")
	from := date("2026-03-10T10:00:00Z")
	for _, one := range []struct {
		at time.Time
		v  int64
	}{{from.Add(-time.Second), 1}, {from, 10}, {from.Add(59 * time.Second), 100}, {from.Add(time.Minute), 1000}} {
		k.send("calls", cus, one.v, one.at, "")
	}
	got, err := k.summaries(m, cus, from, from.Add(time.Minute), "")
	require.NoError(t, err)
	require.Equal(t, []window{{from, from.Add(time.Minute), 110}}, got)
	got, err = k.summaries(m, cus, from.Add(time.Hour), from.Add(2*time.Hour), "")
	require.NoError(t, err)
	require.Equal(t, []window{{from.Add(time.Hour), from.Add(2 * time.Hour), 0}}, got)

	for name, bad := range map[string][3]any{
		"second":        {from.Add(time.Second), from.Add(time.Minute), ""},
		"end second":    {from, from.Add(90 * time.Second), ""},
		"not an hour":   {from.Add(time.Minute), from.Add(time.Hour), "hour"},
		"not midnight":  {from, from.Add(24 * time.Hour), "day"},
		"empty":         {from, from, ""},
		"reverse":       {from, from.Add(-time.Minute), ""},
		"unknown group": {from, from.Add(time.Hour), "week"},
	} {
		_, err := k.summaries(m, cus, bad[0].(time.Time), bad[1].(time.Time), bad[2].(string))
		require.Error(t, err, name)
		refused(t, err, 400)
	}
	_, err = k.summaries(m, "cus_unknown", from, from.Add(time.Minute), "")
	refused(t, err, 400)
}

func TestGroupedSummariesPage(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{Start: date("2026-03-10T12:00:00Z")})
	cus, m := k.customer(), k.meter("calls")
	day := date("2026-03-09T00:00:00Z")
	k.send("calls", cus, 5, day.Add(90*time.Minute), "")
	k.send("calls", cus, 7, day.Add(26*time.Hour), "")
	hours, err := k.summaries(m, cus, day, day.Add(5*time.Hour), "hour")
	require.NoError(t, err)
	require.Len(t, hours, 5)
	require.Equal(t, window{day.Add(4 * time.Hour), day.Add(5 * time.Hour), 0}, hours[0], "newest first")
	require.Equal(t, window{day.Add(time.Hour), day.Add(2 * time.Hour), 5}, hours[3])
	days, err := k.summaries(m, cus, day, day.Add(48*time.Hour), "day")
	require.NoError(t, err)
	require.Equal(t, []window{{day.Add(24 * time.Hour), day.Add(48 * time.Hour), 7}, {day, day.Add(24 * time.Hour), 5}}, days)
}

// Facts 1.4 and 1.7: eventually consistent.
func TestLag(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{SummaryLag: 2 * time.Minute, InvoiceLag: 10 * time.Minute})
	p := k.plan("calls")
	end := at(p.sub.CurrentPeriodEnd)
	k.advance(end.Add(40 * time.Minute))
	k.send("calls", p.customer, 1, end.Add(-2*time.Minute), "")
	k.advance(end.Add(51 * time.Minute))
	k.send("calls", p.customer, 10, end.Add(-2*time.Minute), "")

	read := func() float64 {
		got, err := k.summaries(p.meter, p.customer, end.Add(-2*time.Minute), end.Add(-time.Minute), "")
		require.NoError(t, err)
		return got[0].value
	}
	require.EqualValues(t, 1, read())
	k.advance(end.Add(53 * time.Minute))
	require.EqualValues(t, 11, read())
	k.advance(end.Add(time.Hour))
	inv, err := lastInvoice(k, p.sub.ID)
	require.NoError(t, err)
	require.EqualValues(t, 1, lineOf(t, inv, p.usage).Quantity, "the later event was not aggregated in time")
}

func TestEmptySummariesMayBeLeftOut(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{OmitEmptySummaries: true})
	cus, m := k.customer(), k.meter("calls")
	got, err := k.summaries(m, cus, k.sim.Now(), k.sim.Now().Add(time.Minute), "")
	require.NoError(t, err)
	require.Empty(t, got)
}

// Facts 1.5: formulas and pre-aggregated meters.
func TestOtherAggregations(t *testing.T) {
	t.Parallel()
	k := start(t, stripesim.Config{Start: date("2026-03-10T12:00:00Z")})
	cus := k.customer()
	from := date("2026-03-10T10:00:00Z")
	for _, tc := range []struct {
		formula, window string
		want            int64
	}{{"sum", "", 15}, {"count", "", 3}, {"last", "", 4}, {"sum", "hour", 9}, {"sum", "day", 5}} {
		name := tc.formula + tc.window
		p := &stripe.BillingMeterParams{
			DisplayName: stripe.String(name), EventName: stripe.String(name),
			DefaultAggregation: &stripe.BillingMeterDefaultAggregationParams{Formula: stripe.String(tc.formula)},
		}
		if tc.window != "" {
			p.EventTimeWindow = stripe.String(tc.window)
		}
		m, err := k.api.BillingMeters.New(p)
		require.NoError(t, err)
		k.send(name, cus, 6, from, "")
		k.send(name, cus, 4, from.Add(time.Hour), "") // the latest stamp
		k.send(name, cus, 5, from.Add(time.Second), "")
		require.Equal(t, tc.want, k.sim.Usage(cus, m.ID, from, from.Add(2*time.Hour)), name)
	}
}
