package plans_test

import (
	"fmt"

	"github.com/weirhq/weir/plans"
)

func ExampleParse() {
	catalog, err := plans.Parse([]byte(`
currency: usd
default_plan: free
features:
  events: {meter: events_overage}
plans:
  free: {quota: {events: 10_000}}
  pro:
    prices: [pro_monthly]
    quota:
      events: {included: 1_000_000, overage: {price: "0.40", per: 1000, max: unlimited}}
    on_exceeded: bill_overage
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, _ := catalog.PlanForPrice("pro_monthly")
	quota, _ := plan.Quota("events")
	fmt.Println(plan.Name, quota.Included, quota.Max, quota.Price, quota.Price.UnitAmountDecimal())
	// Output: pro 1000000 unlimited 0.40 usd per 1000 0.04
}

func ExampleErrors() {
	_, err := plans.Parse([]byte(`
default_plan: fre
features:
  events: {}
plans:
  free:
    quota: {evnts: 10k}
`))
	fmt.Println(err)
	// Output:
	// plan file:2:1: default_plan: "fre" is not a plan of this file; did you mean "free"?
	// plan file:7:13: plans.free.quota.evnts: unknown feature "evnts"; did you mean "events"?
	// plan file:7:20: plans.free.quota.evnts: "10k" is not a whole number; write 10_000
}
