package billing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/wording"
)

// standing is what an action may change about an account, so that a preview can say what it would.
type standing struct {
	plan, customer, contact string
	shadow                  bool
	keys                    []keyStanding // the newest period first
}

type keyStanding struct {
	Key                  int64
	Feature              string
	Starts, Ends         time.Time
	Included, Maximum    *int64
	SpendingCap          *int64
	Ceiling              int64
	Free, Overage        int64
	NotBillable          int64
	Invoiced, Pending    *int64 // nil: the period has no books yet, as the next two
	Late, Forgiven       *int64
	Segments, Unreported int64
}

// previewKeys bounds how many keys a preview compares: those of the newest periods.
const previewKeys = 200

// readStanding reads an account's standing. One that does not exist, or no account at all, stands nowhere.
func readStanding(ctx context.Context, tx pgx.Tx, account string) (standing, error) {
	var s standing
	var id int64
	err := tx.QueryRow(ctx, `SELECT a.id, coalesce(a.plan, ''), a.shadow, coalesce((SELECT string_agg(c.customer, ', ' ORDER BY c.customer) FROM weir.customers c WHERE c.account_id = a.id), 'nobody'),
		coalesce((SELECT x.email FROM weir.contacts x WHERE x.account_id = a.id), 'nobody') FROM weir.accounts a WHERE a.account = $1`, account).
		Scan(&id, &s.plan, &s.shadow, &s.customer, &s.contact)
	if errors.Is(err, pgx.ErrNoRows) {
		return standing{customer: "nobody", contact: "nobody"}, nil
	}
	if err != nil {
		return s, fmt.Errorf("read how the account stands: %w", err)
	}
	rows, err := tx.Query(ctx, `SELECT k.key, f.name, p.starts, coalesce(p.cut, p.ends), k.included, k.maximum, k.spending_cap, q.ceiling, t.free, t.overage, t.not_billable,
			b.invoiced, b.pending, b.late, b.forgiven, (SELECT count(*) FROM weir.segments s WHERE s.key = k.key AND s.ends IS NULL),
			weir.billable(t.overage, t.not_billable, k.highest_maximum) - coalesce((SELECT c.upto FROM weir.chains c WHERE c.key = k.key), 0)
		FROM (SELECT x.* FROM weir.periods x WHERE x.account_id = $1 AND x.state <> 'void' ORDER BY x.starts DESC LIMIT $2) p
		JOIN weir.keys k ON k.period_id = p.id JOIN weir.features f ON f.id = k.feature_id JOIN weir.totals t ON t.key = k.key JOIN weir.quotas q ON q.key = k.key
		LEFT JOIN weir.books b ON b.key = k.key ORDER BY p.starts DESC, f.name LIMIT $2`, id, previewKeys)
	if err == nil {
		s.keys, err = pgx.CollectRows(rows, pgx.RowToStructByPos[keyStanding])
	}
	if err != nil {
		return s, fmt.Errorf("read how the account stands: %w", err)
	}
	return s, nil
}

// changes says what is different in another standing, in lines for people.
func (s *standing) changes(to standing) []string {
	var lines []string
	note := func(what, was, is string) {
		if was != is {
			lines = append(lines, fmt.Sprintf("%s: %s → %s", what, was, is))
		}
	}
	note("Customer", s.customer, to.customer)
	note("Shadow mode", onOff(s.shadow), onOff(to.shadow))
	note("Contact", s.contact, to.contact)
	was := make(map[int64]keyStanding, len(s.keys))
	for _, k := range s.keys {
		was[k.Key] = k
	}
	for _, k := range to.keys {
		if old, ok := was[k.Key]; ok {
			lines = append(lines, old.changes(k)...)
		}
	}
	return lines
}

func (k keyStanding) changes(to keyStanding) []string {
	var lines []string
	where := fmt.Sprintf("%s, %s – %s", k.Feature, k.Starts.UTC().Format("2 Jan 2006"), k.Ends.UTC().Format("2 Jan 2006"))
	note := func(what, was, is string) {
		if was != is {
			lines = append(lines, fmt.Sprintf("%s: %s %s → %s", where, what, was, is))
		}
	}
	note("included", bound(k.Included), bound(to.Included))
	note("most overage", bound(k.Maximum), bound(to.Maximum))
	note("spending cap", capText(k.SpendingCap), capText(to.SpendingCap))
	note("ceiling", ceiling(k.Ceiling), ceiling(to.Ceiling))
	note("used of the included", wording.Count(k.Free), wording.Count(to.Free))
	note("overage", wording.Count(k.Overage), wording.Count(to.Overage))
	note("not billable", wording.Count(k.NotBillable), wording.Count(to.NotBillable))
	note("not reported yet", wording.Count(k.Unreported), wording.Count(to.Unreported))
	note("open metered items", wording.Count(k.Segments), wording.Count(to.Segments))
	for _, b := range []struct {
		what    string
		was, is *int64
	}{{"invoiced", k.Invoiced, to.Invoiced}, {"pending", k.Pending, to.Pending}, {"late", k.Late, to.Late}, {"forgiven", k.Forgiven, to.Forgiven}} {
		if b.was != nil && b.is != nil {
			note(b.what, wording.Count(*b.was), wording.Count(*b.is))
		}
	}
	return lines
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func bound(n *int64) string {
	if n == nil {
		return "unlimited"
	}
	return wording.Count(*n)
}

func capText(n *int64) string {
	if n == nil {
		return "none"
	}
	return wording.Count(*n)
}

func ceiling(n int64) string {
	if n >= 1<<61 {
		return "unlimited"
	}
	return wording.Count(n)
}

func signed(n int64) string {
	if n > 0 {
		return "+" + wording.Count(n)
	}
	return wording.Count(n)
}
