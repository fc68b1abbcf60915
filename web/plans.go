package web

import (
	"context"
	"net/http"
	"time"

	"github.com/weirhq/weir/internal/wording"
	"github.com/weirhq/weir/plans"
)

// plansJSON is the public side of the catalog: no Stripe ids, no operator's settings.
type catalogJSON struct {
	Currency    *string    `json:"currency"`
	DefaultPlan string     `json:"default_plan"`
	Plans       []planJSON `json:"plans"`
}

type planJSON struct {
	Plan       string      `json:"plan"`
	Name       string      `json:"name"`
	UpgradeURL *string     `json:"upgrade_url"`
	Interval   string      `json:"interval"`
	Rate       *rateJSON   `json:"rate"` // null: no rate limit
	Quotas     []quotaJSON `json:"quotas"`
}

type rateJSON struct {
	Limit         int64 `json:"limit"`
	WindowSeconds int64 `json:"window_seconds"`
}

type quotaJSON struct {
	Feature    string       `json:"feature"`
	Name       string       `json:"name"`
	Unit       string       `json:"unit"`
	Included   plans.Amount `json:"included"` // null: unlimited
	OnExceeded string       `json:"on_exceeded"`
	Overage    *overageJSON `json:"overage"` // null: use past the included units is refused
	PerSeat    bool         `json:"per_quantity"`
}

type overageJSON struct {
	Price *string      `json:"price"` // whole currency units, for per units; null: agreed on elsewhere
	Per   *int64       `json:"per"`
	Max   plans.Amount `json:"max"` // units; null: no bound
}

func (p *Pages) plansJSON(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	cat, err := p.catalogNow(ctx)
	if err != nil {
		p.unavailable(w, err)
		return
	}
	public(w)
	w.Header().Set("Access-Control-Allow-Origin", "*") // prices are for everybody's pages
	p.writeJSON(w, catalogOf(cat))
}

func public(w http.ResponseWriter) { w.Header().Set("Cache-Control", "public, max-age=60") }

func catalogOf(cat *plans.Catalog) catalogJSON {
	out := catalogJSON{Currency: orNull(cat.Currency()), DefaultPlan: cat.DefaultPlan().Name}
	for _, p := range cat.Plans() {
		one := planJSON{Plan: p.Name, Name: p.DisplayName, UpgradeURL: orNull(p.UpgradeURL), Interval: string(p.Interval), Quotas: []quotaJSON{}}
		if p.HasRate {
			one.Rate = &rateJSON{p.Rate.Limit, int64(p.Rate.Window / time.Second)}
		}
		for _, q := range p.Quotas() {
			f, _ := cat.Feature(q.Feature)
			j := quotaJSON{Feature: q.Feature, Name: f.DisplayName, Unit: unitOf(f).one, Included: q.Included, OnExceeded: "block", PerSeat: q.PerQuantity}
			if q.BillOverage {
				j.OnExceeded, j.Overage = "bill_overage", &overageJSON{Max: q.Max}
				if !q.Price.FromStripe() {
					s, per := q.Price.Amount().String(), q.Price.Per()
					j.Overage.Price, j.Overage.Per = &s, &per
				}
			}
			one.Quotas = append(one.Quotas, j)
		}
		out.Plans = append(out.Plans, one)
	}
	return out
}

// pricingView is the pricing table.
type pricingView struct {
	Plans    []pricingPlan
	Currency string
	Assets   assetNames
}

type pricingPlan struct {
	Name       string
	Default    bool
	UpgradeURL string
	Interval   string
	Quotas     []pricingQuota
	Rate       string
}

type pricingQuota struct{ Included, Name, Past string }

func (p *Pages) pricing(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	cat, err := p.catalogNow(ctx)
	if err != nil {
		private(w)
		p.failed(w, err)
		return
	}
	public(w)
	v := pricingView{Currency: upper(cat.Currency()), Assets: p.views.assets}
	for _, plan := range cat.Plans() {
		v.Plans = append(v.Plans, pricingOf(cat, plan))
	}
	p.render(w, http.StatusOK, "plans.html", v)
}

func pricingOf(cat *plans.Catalog, plan plans.Plan) pricingPlan {
	out := pricingPlan{Name: plan.DisplayName, Default: plan.Name == cat.DefaultPlan().Name, UpgradeURL: plan.UpgradeURL, Interval: string(plan.Interval)}
	if plan.HasRate {
		out.Rate = wording.Count(plan.Rate.Limit) + " calls per " + window(plan.Rate.Window)
	}
	c, hasCurrency := currencyOf(cat.Currency())
	for _, q := range plan.Quotas() {
		f, _ := cat.Feature(q.Feature)
		u := unitOf(f)
		row := pricingQuota{Included: "Unlimited", Name: f.DisplayName, Past: "no limit"}
		if n, finite := q.Included.Units(); finite {
			row.Included, row.Past = wording.Count(n), "then refused until the next "+string(plan.Interval)
			if q.PerQuantity {
				row.Name += " per seat"
			}
		}
		if q.BillOverage {
			row.Past = "then billed by use"
			if !q.Price.FromStripe() && hasCurrency {
				row.Past = "then " + c.price(q.Price.UnitAmount(), u)
			}
			if n, finite := q.Max.Units(); finite {
				row.Past += ", up to " + wording.Count(n) + " more"
			}
		}
		out.Quotas = append(out.Quotas, row)
	}
	return out
}

// window is a duration of whole seconds in words.
func window(d time.Duration) string {
	for _, w := range []struct {
		d    time.Duration
		name string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if d%w.d == 0 {
			if d == w.d {
				return w.name
			}
			return wording.Count(int64(d/w.d)) + " " + w.name + "s"
		}
	}
	return d.String()
}
