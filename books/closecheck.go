package books

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// closeCheck is one way in which the books can break. Its query returns key and message of each break among the keys
// of $1; every number is computed from the rows that it follows from, never from the one that is checked.
type closeCheck struct{ kind, sql string }

var closeChecks = [...]closeCheck{
	{"identity", `SELECT b.key, format('overage %s is not invoiced %s + pending %s + late %s + forgiven %s + not billable %s', b.overage, b.invoiced, b.pending, b.late, b.forgiven, b.not_billable)
		FROM weir.books b WHERE b.key = ANY ($1) AND b.overage <> b.invoiced + b.pending + b.late + b.forgiven + b.not_billable`},
	{"no_books", `SELECT k.key, 'the period is closed and has no books' FROM weir.keys k JOIN weir.periods p ON p.id = k.period_id AND p.state IN ('closed', 'invoiced')
		WHERE k.key = ANY ($1) AND NOT EXISTS (SELECT FROM weir.books b WHERE b.key = k.key)`},
	{"totals", `SELECT t.key, format('free %s + overage %s is not used %s + adjusted %s + carried %s', t.free, t.overage, t.used, t.adjusted, t.carried)
		FROM weir.totals t WHERE t.key = ANY ($1) AND t.free + t.overage <> t.used + t.adjusted + t.carried`},
	{"used", `SELECT t.key, format('used %s is not the sum of what nodes counted, %s', t.used, coalesce(d.used, 0)) FROM weir.totals t
		LEFT JOIN LATERAL (SELECT sum(x.used) AS used FROM weir.done x WHERE x.key = t.key) d ON true WHERE t.key = ANY ($1) AND t.used <> coalesce(d.used, 0)`},
	{"adjusted", `SELECT t.key, format('adjusted %s is not the sum of the adjustments, %s', t.adjusted, coalesce(d.units, 0)) FROM weir.totals t
		LEFT JOIN LATERAL (SELECT sum(x.units) AS units FROM weir.adjustments x WHERE x.key = t.key) d ON true WHERE t.key = ANY ($1) AND t.adjusted <> coalesce(d.units, 0)`},
	{"days", `SELECT t.key, format('used %s and overage %s are not what the days and adjustments add up to, %s and %s', t.used, t.overage, d.used, d.overage + a.overage) FROM weir.totals t
		CROSS JOIN LATERAL (SELECT coalesce(sum(h.used), 0) AS used, coalesce(sum(h.overage), 0) AS overage FROM weir.history h WHERE h.key = t.key) d
		CROSS JOIN LATERAL (SELECT coalesce(sum(x.overage), 0) AS overage FROM weir.adjustments x WHERE x.key = t.key) a
		WHERE t.key = ANY ($1) AND (t.used <> d.used OR t.overage <> d.overage + a.overage)`},
	{"unbilled", `SELECT t.key, format('not billable %s is not what its causes add up to, %s', t.not_billable, u.units) FROM weir.totals t
		CROSS JOIN LATERAL (SELECT coalesce(sum(x.units), 0) AS units FROM weir.unbilled x WHERE x.key = t.key) u
		WHERE t.key = ANY ($1) AND t.not_billable <> u.units`},
	{"overage", `SELECT b.key, format('the books say overage %s, not billable %s; counted are %s and %s', b.overage, b.not_billable, t.overage, t.not_billable)
		FROM weir.books b JOIN weir.totals t ON t.key = b.key WHERE b.key = ANY ($1) AND (b.overage <> t.overage OR b.not_billable <> t.not_billable)`},
	{"invoiced", `SELECT b.key, format('invoiced %s is not what finalized lines bill less credits, %s', b.invoiced, x.units) FROM weir.books b
		CROSS JOIN LATERAL (SELECT coalesce((SELECT sum(i.units) FROM weir.invoiced i JOIN weir.invoice_lines l ON l.line = i.line JOIN weir.invoices v ON v.invoice = l.invoice
				WHERE i.key = b.key AND v.status IN ('open', 'paid', 'uncollectible')), 0)
			+ coalesce((SELECT sum(l.units) FROM weir.late l WHERE l.key = b.key AND l.state = 'credited'), 0) AS units) x
		WHERE b.key = ANY ($1) AND b.invoiced <> x.units`},
	{"line", `SELECT x.key, format('line %s of invoice %s bills %s units, its keys were given %s', l.line, l.invoice, l.quantity, x.given) FROM weir.invoice_lines l
		JOIN (SELECT i.line, min(i.key) FILTER (WHERE i.key = ANY ($1)) AS key, sum(i.units) AS given FROM weir.invoiced i
			WHERE i.line IN (SELECT j.line FROM weir.invoiced j WHERE j.key = ANY ($1)) GROUP BY i.line) x ON x.line = l.line
		WHERE x.given <> l.quantity`},
	{"pending_final", `SELECT b.key, format('the invoice is final, and %s units are pending', b.pending) FROM weir.books b WHERE b.key = ANY ($1) AND b.final AND b.pending <> 0`},
	{"late_open", `SELECT b.key, format('%s units are late before the invoice is final', b.late) FROM weir.books b WHERE b.key = ANY ($1) AND NOT b.final AND b.late <> 0`},
	{"late_rows", `SELECT b.key, format('late %s is not the sum of the open late rows, %s', b.late, coalesce(d.units, 0)) FROM weir.books b
		LEFT JOIN LATERAL (SELECT sum(l.units) AS units FROM weir.late l WHERE l.key = b.key AND l.state IN ('held', 'stored', 'sent')) d ON true
		WHERE b.key = ANY ($1) AND b.final AND b.late <> coalesce(d.units, 0)`},
	{"forgiven", `SELECT b.key, format('forgiven %s is not overshoot %s and what was written off, %s', b.forgiven, x.overshoot, x.units) FROM weir.books b
		JOIN weir.keys k ON k.key = b.key JOIN weir.totals t ON t.key = b.key
		CROSS JOIN LATERAL (SELECT t.overage - t.not_billable - weir.billable(t.overage, t.not_billable, k.highest_maximum) AS overshoot,
			coalesce((SELECT sum(f.units) FROM weir.forgiven f WHERE f.key = b.key), 0) AS units) x
		WHERE b.key = ANY ($1) AND (b.forgiven <> x.overshoot + x.units OR b.overshoot <> x.overshoot)`},
	{"chain", `SELECT r.key, format('link %s goes from %s, the one before it ends at %s', r.seq, r.from_units, r.before) FROM (
			SELECT x.key, x.seq, x.from_units, coalesce(lag(x.to_units) OVER w, 0) AS before, coalesce(lag(x.seq) OVER w, 0) AS last FROM weir.reports x
			WHERE x.key = ANY ($1) AND NOT x.replaced WINDOW w AS (PARTITION BY x.key ORDER BY x.seq)) r WHERE r.from_units <> r.before OR r.seq <> r.last + 1`},
	{"chain_head", `SELECT c.key, format('the chain ends at %s (link %s), its head says %s (link %s)', coalesce(r.to_units, 0), coalesce(r.seq, 0), c.upto, c.seq) FROM weir.chains c
		LEFT JOIN LATERAL (SELECT x.seq, x.to_units FROM weir.reports x WHERE x.key = c.key AND NOT x.replaced ORDER BY x.seq DESC LIMIT 1) r ON true
		WHERE c.key = ANY ($1) AND (c.upto <> coalesce(r.to_units, 0) OR c.seq <> coalesce(r.seq, 0))`},
	{"segment", `SELECT s.key, format('segment %s reports %s units, less than nothing', s.id, weir.segment_sum(s.id)) FROM weir.segments s WHERE s.key = ANY ($1) AND weir.segment_sum(s.id) < 0`},
	{"stamp", `SELECT r.key, format('link %s is stamped %s, outside its segment or period', r.seq, r.stamp) FROM weir.reports r JOIN weir.segments s ON s.id = r.segment
		JOIN weir.keys k ON k.key = r.key JOIN weir.periods p ON p.id = k.period_id
		WHERE r.key = ANY ($1) AND r.stamp IS NOT NULL AND (r.stamp < greatest(s.starts, p.starts) OR r.stamp >= p.planned)`},
	{"attempts", `SELECT r.key, format('link %s is %s, and no attempt of it was accepted', r.seq, r.state) FROM weir.reports r
		WHERE r.key = ANY ($1) AND r.state = 'delivered' AND NOT EXISTS (SELECT FROM weir.report_attempts a WHERE a.report = r.id AND a.outcome = 'delivered')`},
	{"two_identities", `SELECT r.key, format('link %s is for customer %s, its segment for %s', r.seq, r.customer, s.customer) FROM weir.reports r JOIN weir.segments s ON s.id = r.segment
		WHERE r.key = ANY ($1) AND (r.customer <> s.customer OR r.meter <> s.meter OR r.key <> s.key)`},
}

// notClosed finds keys of $1 whose period was not closed in time.
var notClosed = closeCheck{"not_closed", `SELECT k.key, format('the period ended at %s and its close is overdue since %s', p.ends, weir.close_deadline(p))
	FROM weir.periods p JOIN weir.keys k ON k.period_id = p.id WHERE k.key = ANY ($1) AND weir.close_deadline(p) < $2::timestamptz - interval '10 minutes'`}

// breaksOf checks keys: of closed periods each check, or those of the kinds that are named; of others whether they
// should be closed by now.
func breaksOf(ctx context.Context, tx pgx.Tx, keys []int64, closed bool, now time.Time, kinds []string) ([]CloseBreak, error) {
	if !closed {
		return notClosed.run(ctx, tx, keys, now)
	}
	var all []CloseBreak
	for i := range closeChecks {
		if kinds != nil && !slices.Contains(kinds, closeChecks[i].kind) {
			continue
		}
		found, err := closeChecks[i].run(ctx, tx, keys)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func (c *closeCheck) run(ctx context.Context, tx pgx.Tx, args ...any) ([]CloseBreak, error) {
	rows, err := tx.Query(ctx, `SELECT a.account, x.key, x.message FROM (`+c.sql+`) x(key, message)
		JOIN weir.keys k ON k.key = x.key JOIN weir.accounts a ON a.id = k.account_id ORDER BY a.account, x.key`, args...)
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", c.kind, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (CloseBreak, error) {
		b := CloseBreak{Kind: c.kind}
		err := row.Scan(&b.Account, &b.Key, &b.Message)
		return b, err
	})
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", c.kind, err)
	}
	return all, nil
}
