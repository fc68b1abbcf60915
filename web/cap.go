package web

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/shopspring/decimal"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/usage"
)

const (
	capFormName  = "spending cap"
	maxFormBytes = 4 << 10
	maxCapWhole  = 9       // digits before the point
	maxCapUnits  = 1 << 53 // the most that Stripe can bill exactly
	capActor     = "customer"
)

// setCap stores a spending cap and shows the page again. Only the page's own form gets here: the browser says where a
// post comes from, and the form carries a key that belongs to the link.
func (p *Pages) setCap(w http.ResponseWriter, r *http.Request) {
	private(w)
	token := r.PathValue("token")
	account, _, ok := p.open(w, token)
	if !ok {
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxFormBytes)
	if err := r.ParseForm(); err != nil {
		p.fault(w, http.StatusBadRequest, "This form can't be read", "Go back and send it again.")
		return
	}
	if !p.cfg.Links.FormKeyFits(token, capFormName, r.PostForm.Get("key")) {
		p.fault(w, http.StatusForbidden, "This form was not sent from its page", "Open the usage page and send it from there.")
		return
	}
	b, err := p.statement(r.Context(), account)
	if err != nil {
		p.failed(w, err)
		return
	}
	v := b.page()
	p.complete(&v, token)
	for i := range v.Features {
		f := v.Features[i].Cap
		if f == nil || f.Feature != r.PostForm.Get("feature") {
			continue
		}
		units, err := b.wantedCap(f, r.PostForm.Get("do"), r.PostForm.Get("amount"))
		if err != nil {
			f.Error, f.Value = err.Error(), shorten(r.PostForm.Get("amount"))
			p.render(w, http.StatusUnprocessableEntity, "usage.html", v)
			return
		}
		action := billing.SetSpendingCap{Account: account, Feature: f.Feature, Units: units}
		by := usage.By{Actor: capActor, Way: usage.WayPage, Reason: "set on the usage page"}
		if _, err := p.biller.Do(r.Context(), &action, by); err != nil {
			p.failed(w, err)
			return
		}
		http.Redirect(w, r, "/usage/"+token+"?saved="+v.Features[i].ID+"#cap-"+v.Features[i].ID, http.StatusSeeOther)
		return
	}
	p.fault(w, http.StatusBadRequest, "This has no spending cap", "Your plan bills no overage of it. Go back to the usage page.")
}

// wantedCap reads what the form asks for: units, or nil for no cap. Its errors are shown to the customer.
func (b builder) wantedCap(f *capForm, do, amount string) (*int64, error) {
	if do == "remove" {
		return nil, nil //nolint:nilnil // no cap
	}
	for i := range b.s.Lines {
		l := &b.s.Lines[i]
		if !l.Running || l.Feature != f.Feature {
			continue
		}
		c, ok := b.currency(l)
		if !ok {
			break
		}
		d, err := parseAmount(amount, c)
		if err != nil {
			return nil, err
		}
		units := c.capUnits(d, l.UnitAmount.Decimal)
		if units < 0 || units > maxCapUnits {
			return nil, errors.New("That is more than can be billed. Enter a smaller amount, or remove the cap.")
		}
		return &units, nil
	}
	return nil, errors.New("This cap can't be set now. Reload the page and try again.")
}

// parseAmount reads an amount of whole currency units: digits, and a point with at most the currency's decimals.
func parseAmount(s string, c currency) (decimal.Decimal, error) {
	s = strings.TrimSpace(s)
	whole, fraction, point := strings.Cut(s, ".")
	digits := func(x string) bool { return x != "" && strings.Trim(x, "0123456789") == "" }
	if !digits(whole) || point && !digits(fraction) {
		return decimal.Zero, fmt.Errorf("Enter an amount such as 25%s, without a sign or separators.", map[bool]string{true: ".00"}[c.exponent > 0])
	}
	if len(whole) > maxCapWhole || len(fraction) > int(c.exponent) {
		return decimal.Zero, fmt.Errorf("Enter at most %d digits and %d decimals.", maxCapWhole, c.exponent)
	}
	return decimal.NewFromString(s)
}

func shorten(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "")
	}
	return s
}
