package stripesim_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/stripe/stripe-go/v79"
	"github.com/stripe/stripe-go/v79/client"

	"github.com/weirhq/weir/internal/stripesim"
)

// A subscription renews, and the usage reported within the grace period is on
// its invoice.
func Example() {
	if err := renewal(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	// Output:
	// 2026-02-01T00:00:00Z draft, 0 units
	// 2026-02-01T01:00:00Z paid, 2500 units for 100 cents
}

func renewal(ctx context.Context) error {
	sim := stripesim.New(stripesim.Config{})
	base, stop, err := sim.Listen()
	if err != nil {
		return err
	}
	defer stop()
	sc := client.New(sim.APIKey(), stripe.NewBackendsWithConfig(&stripe.BackendConfig{URL: stripe.String(base)}))

	customer, err := subscribeToUsage(sc)
	if err != nil {
		return err
	}
	end := time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)
	if err := sim.Advance(ctx, end); err != nil {
		return err
	}
	show(sim, customer)
	_, err = sc.BillingMeterEvents.New(event("api_calls", customer, 2500, end.Add(-time.Minute), "close-1"))
	if err != nil {
		return err
	}
	if err := sim.Advance(ctx, end.Add(time.Hour)); err != nil {
		return err
	}
	show(sim, customer)
	return nil
}

func show(sim *stripesim.Server, customer string) {
	all := sim.Invoices(customer)
	inv := all[len(all)-1]
	fmt.Printf("%s %s, %d units", sim.Now().Format(time.RFC3339), inv.Status, inv.Lines[0].Quantity)
	if inv.Total > 0 {
		fmt.Printf(" for %d cents", inv.Total)
	}
	fmt.Println()
}

func subscribeToUsage(sc *client.API) (customer string, err error) {
	meter, err := sc.BillingMeters.New(&stripe.BillingMeterParams{
		DisplayName: stripe.String("API calls"), EventName: stripe.String("api_calls"),
		DefaultAggregation: &stripe.BillingMeterDefaultAggregationParams{Formula: stripe.String("sum")},
	})
	if err != nil {
		return "", err
	}
	price, err := sc.Prices.New(&stripe.PriceParams{
		Currency: stripe.String("usd"), UnitAmountDecimal: stripe.Float64(0.04), ProductData: &stripe.PriceProductDataParams{Name: stripe.String("API")},
		Recurring: &stripe.PriceRecurringParams{Interval: stripe.String("month"), UsageType: stripe.String("metered"), Meter: stripe.String(meter.ID)},
	})
	if err != nil {
		return "", err
	}
	cus, err := sc.Customers.New(&stripe.CustomerParams{})
	if err != nil {
		return "", err
	}
	_, err = sc.Subscriptions.New(&stripe.SubscriptionParams{
		Customer: stripe.String(cus.ID), Items: []*stripe.SubscriptionItemsParams{{Price: stripe.String(price.ID)}},
	})
	return cus.ID, err
}
