package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/internal/wording"
	"github.com/weirhq/weir/web/link"
)

// compare prints every account's units on every side, and reports whether they agree: what was asked is what was
// admitted or refused, what was admitted is what is stored, what went over is what Stripe got and what its invoice
// bills.
func (w *world) compare(ctx context.Context) (bool, error) {
	header := []string{"account", "plan", "asked", "admitted", "refused", "stored", "overage", "reported", "invoiced", "amount"}
	var rows [][]string
	var good []bool
	all := true
	for _, a := range w.accounts {
		t, err := w.total(ctx, a)
		if err != nil {
			return false, err
		}
		reported := w.reported(a)
		line, invoiced := w.invoice(a)
		ok := a.asked == a.admitted+a.refused && a.admitted == t.Used && t.Used == t.Free+t.Overage &&
			t.Overage == reported && reported == line.Quantity && invoiced == (a.customer != "") && a.asExpected(t.Overage)
		row := []string{a.id, a.plan, wording.Count(a.asked), wording.Count(a.admitted), wording.Count(a.refused), wording.Count(t.Used), "–", "–", "–", "–"}
		if a.customer != "" {
			copy(row[6:], []string{
				wording.Count(t.Overage), wording.Count(reported), wording.Count(line.Quantity), fmt.Sprintf("$%d.%02d", line.Amount/100, line.Amount%100),
			})
		}
		rows, good, all = append(rows, row), append(good, ok), all && ok
	}
	w.say.table(header, rows, good)
	return all, nil
}

// asExpected checks the outcome against the plan file by hand: the quota is filled to the unit, and no further.
func (a *account) asExpected(overage int64) bool {
	const freeQuota, included, most = 10_000, 1_000_000, 5_000_000
	if a.plan == "free" {
		return a.admitted == min(a.asked, freeQuota)
	}
	return a.admitted == min(a.asked, included+most) && overage == max(0, a.admitted-included)
}

// invite says what there is to look at while everything runs.
func (w *world) invite() error {
	links, err := link.NewSigner(linkSecret)
	if err != nil {
		return fmt.Errorf("sign links: %w", err)
	}
	w.say.printf("  Everything is still running. Have a look:\n\n")
	w.say.printf("    worker      %s\n", w.worker.url)
	w.say.printf("    admin       %s/admin/  (token: token-of-the-demo)\n", w.worker.url)
	for _, a := range w.accounts[len(w.accounts)-2:] {
		page, err := links.URL(w.worker.url, a.id, time.Now().Add(24*time.Hour))
		if err != nil {
			return fmt.Errorf("sign a link: %w", err)
		}
		w.say.printf("    usage page  %s  (what %s sees)\n", page, a.id)
	}
	for _, c := range w.enforcer {
		w.say.printf("    %s  %s\n", c.name, c.url)
	}
	w.say.printf("    stripe      %s  (key %s)\n", w.stripeAt, w.stripe.APIKey())
	w.say.printf("    database    psql '%s'\n\n", w.dbURL)
	w.say.printf("    curl -s %s/v1/usage/birch\n", w.enforcer[0].url)
	w.say.printf("    curl -s %s/v1/consume -d '{\"account\":\"birch\",\"feature\":\"events\",\"units\":1}'\n\n", w.enforcer[0].url)
	w.say.printf("  Stop it with Ctrl-C.\n")
	return nil
}
