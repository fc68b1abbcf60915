package books

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/shopspring/decimal"

	"github.com/weirhq/weir/usage"
)

// StatementPeriods bounds how many periods a statement goes back, the running one included.
const StatementPeriods = 13

// Statement is what one account used and owes, read in one snapshot: every number in it is of the same instant. Counts
// are units, what lies in the inbox included.
type Statement struct {
	Account string
	AsOf    time.Time // business time
	Lines   []StatementLine
}

// StatementLine is one feature in one period. Running lines come first, then ended ones, the newest first.
type StatementLine struct {
	Key         int64 // 0: nothing was counted in this period yet, and the terms are those that it would begin with
	Period      int64
	Running     bool
	Plan        string
	Feature     string
	Starts      time.Time
	Ends        time.Time
	State       string // of the period: open, closing, closed, invoiced; none without a row
	Source      string // calendar or subscription
	Confirmed   bool   // by Stripe
	Included    *int64 // nil: unlimited
	Maximum     *int64 // overage units; nil: unlimited
	SpendingCap *int64 // overage units, the customer's own; nil: none
	OnExceeded  string // block or bill_overage
	OverageOpen bool   // overage is admitted: billed by the plan, and the account is billable or may go on
	Billability string // yes, awaiting or no
	InPlan      bool
	Shadow      bool                // the account or its plan is in shadow mode now: of what is in the plan nothing is refused
	UnitAmount  decimal.NullDecimal // minor currency units per unit, before tax, discounts and credits
	Currency    string              // of the metered item; empty where there is none
	WarnAt      []int32             // percent
	Used        int64               // Free + Overage
	Free        int64               // counted against Included
	Overage     int64
	Billable    int64 // the part of Overage that is billed
	Carried     int64 // the part of Free that an earlier, cut period handed on
	Adjusted    int64 // corrections, contained in Used
	Days        []StatementDay
	WrittenOff  int64          // the part of Billable that nobody will be billed for after all
	Book        *StatementBook // nil until the period is closed
	Invoiced    []StatementInvoice
}

// Due is how many units are, or will be, on invoices.
func (l *StatementLine) Due() int64 { return l.Billable - l.WrittenOff }

// StatementDay is a UTC day.
type StatementDay struct {
	Day     time.Time
	Used    int64
	Overage int64
}

// StatementBook is the identity of a closed period: overage = invoiced + pending + late + forgiven + not billable.
type StatementBook struct {
	CloseNumbers
	Final bool // the invoice of its window is final, or none is to come
}

// StatementInvoice is what a line of a finalized invoice bills of the period.
type StatementInvoice struct {
	Invoice  string
	Number   string
	Status   string
	URL      string // where the customer sees it; may be empty
	Currency string
	Units    int64 // of this period
	Credited int64 // of Units, by credit notes since
	Quantity int64 // of the whole line
	Amount   int64 // of the whole line, minor currency units
}

// ReadStatement reads an account's statement as of now, in one snapshot. An account that is not known yet has the
// default plan's terms and no usage. Without a published catalog the error wraps usage.ErrNoCatalog.
func ReadStatement(ctx context.Context, db usage.DB, account string, now time.Time) (*Statement, error) {
	s := &Statement{Account: account, AsOf: now.UTC()}
	err := inSnapshot(ctx, db, func(tx pgx.Tx) error {
		if err := s.readLines(ctx, tx); err != nil {
			return err
		}
		return s.readDetails(ctx, tx)
	})
	if err != nil {
		return nil, fmt.Errorf("read the statement: %w", err)
	}
	return s, nil
}

const statementLines = `
	WITH a AS MATERIALIZED (SELECT x.id, x.shadow, weir.period_at(x.id, $2) AS running FROM weir.accounts x WHERE x.account = $1),
	shown AS MATERIALIZED (
		SELECT p.* FROM weir.periods p
		WHERE p.account_id = (SELECT a.id FROM a) AND p.state <> 'void' AND p.starts <= $2 ORDER BY p.starts DESC LIMIT $3)
	SELECT k.key, p.id, p.id IS NOT DISTINCT FROM (SELECT a.running FROM a), p.plan, f.name, p.starts, coalesce(p.cut, p.ends), p.state, p.source, p.confirmed,
	       k.included, k.maximum, k.spending_cap, k.on_exceeded, weir.overage_open(k.on_exceeded, k.billability, k.when_not_billable),
	       k.billability, k.in_plan, weir.in_shadow((SELECT a.shadow FROM a), p.plan, (SELECT weir.shadow_plans())), coalesce(s.unit_amount, k.unit_amount)::text, coalesce(s.currency, ''), k.warn_at,
	       weir.stored(k.key), t.used, t.free, t.overage, t.not_billable, k.highest_maximum, t.carried, t.adjusted,
	       b.overage, b.invoiced, b.pending, b.late, b.forgiven, b.not_billable, b.final, coalesce(b.forgiven - b.overshoot, 0)
	FROM shown p
	JOIN weir.keys k ON k.period_id = p.id
	JOIN weir.features f ON f.id = k.feature_id
	JOIN weir.totals t ON t.key = k.key
	LEFT JOIN LATERAL (SELECT x.unit_amount, x.currency FROM weir.segments x WHERE x.key = k.key ORDER BY x.id DESC LIMIT 1) s ON true
	LEFT JOIN weir.books b ON b.key = k.key
	ORDER BY 3 DESC, p.starts DESC, k.feature_id`

// statementFresh is what a period that nobody has used yet would begin with, as weir.make_period does it.
const statementFresh = `
	WITH c AS MATERIALIZED (SELECT x.number, x.default_plan FROM weir.catalogs x ORDER BY x.number DESC LIMIT 1),
	a AS MATERIALIZED (
		SELECT x.id, x.plan, x.anchor, x.months, coalesce(x.shadow, false) AS shadow, coalesce(x.quantity, 1) AS quantity,
		       coalesce(x.anchor IS NOT NULL AND (x.plan_until IS NULL OR $2 < x.plan_until), false) AS paid
		FROM (SELECT 1) one LEFT JOIN weir.accounts x ON x.account = $1)
	SELECT 0::bigint, 0::bigint, true, pt.plan, f.name, n.starts, n.ends, 'none', CASE WHEN a.paid THEN 'subscription' ELSE 'calendar' END, false,
	       coalesce(o.included, pt.included * q.times), coalesce(o.maximum, pt.maximum * q.times), o.spending_cap, pt.on_exceeded,
	       weir.overage_open(pt.on_exceeded, CASE WHEN a.paid THEN 'awaiting' ELSE 'no' END, pt.when_not_billable),
	       CASE WHEN a.paid THEN 'awaiting' ELSE 'no' END, true, weir.in_shadow(a.shadow, pt.plan), pt.unit_amount::text, '', pt.warn_at,
	       0::bigint, 0::bigint, 0::bigint, 0::bigint, 0::bigint, NULL::bigint, 0::bigint, 0::bigint,
	       NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::boolean, 0::bigint
	FROM c CROSS JOIN a
	JOIN weir.plan_terms pt ON pt.catalog = c.number AND pt.plan = CASE WHEN a.paid THEN coalesce(a.plan, c.default_plan) ELSE c.default_plan END
	JOIN weir.features f ON f.id = pt.feature_id
	CROSS JOIN LATERAL weir.natural_period(CASE WHEN a.paid THEN a.anchor END, a.months, $2) n
	CROSS JOIN LATERAL (SELECT CASE WHEN pt.per_quantity THEN a.quantity ELSE 1 END AS times) q
	LEFT JOIN weir.overrides o ON o.account_id = a.id AND o.feature_id = pt.feature_id
	ORDER BY pt.feature_id`

const (
	statementDays = `SELECT h.key, h.day, h.used, h.overage FROM weir.history h WHERE h.key = ANY ($1) ORDER BY h.key, h.day`

	statementInvoices = `
	SELECT x.key, i.invoice, coalesce(i.number, ''), i.status, coalesce(i.hosted_url, ''), coalesce(i.currency, ''), x.units,
	       coalesce((SELECT -sum(c.units) FROM weir.late c WHERE c.line = x.line AND c.key = x.key AND c.state = 'credited'), 0)::bigint, l.quantity, l.amount
	FROM weir.invoiced x JOIN weir.invoice_lines l ON l.line = x.line JOIN weir.invoices i ON i.invoice = l.invoice
	WHERE x.key = ANY ($1) ORDER BY x.key, i.created, l.line`
)

// StatementQueries are what ReadStatement runs, so that tests can look at the plans: first the settings of its
// transaction, then its queries.
func StatementQueries() []string {
	return []string{byIndex, statementLines, statementFresh, statementDays, statementInvoices}
}

func (s *Statement) readLines(ctx context.Context, tx pgx.Tx) error {
	lines, err := queryLines(ctx, tx, statementLines, s.Account, s.AsOf, StatementPeriods)
	if err != nil {
		return err
	}
	if len(lines) == 0 || !lines[0].Running {
		fresh, err := queryLines(ctx, tx, statementFresh, s.Account, s.AsOf)
		if err != nil {
			return err
		}
		if len(fresh) == 0 {
			if err := catalogThere(ctx, tx); err != nil {
				return err
			}
		}
		lines = append(fresh, lines...)
	}
	s.Lines = lines
	return nil
}

func catalogThere(ctx context.Context, tx pgx.Tx) error {
	var any bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM weir.catalogs)").Scan(&any); err != nil {
		return err
	}
	if !any {
		return usage.ErrNoCatalog
	}
	return nil
}

func queryLines(ctx context.Context, tx pgx.Tx, sql string, args ...any) ([]StatementLine, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanLine)
}

func scanLine(row pgx.CollectableRow) (StatementLine, error) {
	var l StatementLine
	var amount *string
	var stored, folded, notBillable int64
	var highest *int64
	var b [6]*int64
	var final *bool
	err := row.Scan(&l.Key, &l.Period, &l.Running, &l.Plan, &l.Feature, &l.Starts, &l.Ends, &l.State, &l.Source, &l.Confirmed,
		&l.Included, &l.Maximum, &l.SpendingCap, &l.OnExceeded, &l.OverageOpen, &l.Billability, &l.InPlan, &l.Shadow, &amount, &l.Currency, &l.WarnAt,
		&stored, &folded, &l.Free, &l.Overage, &notBillable, &highest, &l.Carried, &l.Adjusted, &b[0], &b[1], &b[2], &b[3], &b[4], &b[5], &final, &l.WrittenOff)
	if err != nil {
		return l, err
	}
	l.Starts, l.Ends = l.Starts.UTC(), l.Ends.UTC()
	if amount != nil {
		d, err := decimal.NewFromString(*amount)
		if err != nil {
			return l, err
		}
		l.UnitAmount = decimal.NullDecimal{Decimal: d, Valid: true}
	}
	l.count(stored-folded, notBillable, highest)
	if final != nil {
		l.Book = &StatementBook{CloseNumbers{Overage: *b[0], Invoiced: *b[1], Pending: *b[2], Late: *b[3], Forgiven: *b[4], NotBillable: *b[5]}, *final}
	}
	return l, nil
}

// count adds what lies in the inbox as the fold will: included units first.
func (l *StatementLine) count(waiting, notBillable int64, highest *int64) {
	free := waiting
	if l.Included != nil {
		free = min(waiting, max(0, *l.Included-l.Free))
	}
	l.Free += free
	l.Overage += waiting - free
	if l.Billability != "yes" {
		notBillable += waiting - free
	}
	l.Billable = l.Overage - notBillable
	if highest != nil {
		l.Billable = min(l.Billable, *highest)
	}
	l.Used = l.Free + l.Overage
	if waiting > 0 && l.Key != 0 {
		l.Days = []StatementDay{{Used: waiting, Overage: waiting - free}}
	}
}

func (s *Statement) readDetails(ctx context.Context, tx pgx.Tx) error {
	at := make(map[int64]*StatementLine, len(s.Lines))
	keys := make([]int64, 0, len(s.Lines))
	for i := range s.Lines {
		if k := s.Lines[i].Key; k != 0 {
			at[k] = &s.Lines[i]
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	waiting := make(map[int64][]StatementDay, len(keys))
	for _, k := range keys {
		waiting[k], at[k].Days = at[k].Days, nil
	}
	var key int64
	var d StatementDay
	rows, err := tx.Query(ctx, statementDays, keys)
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&key, &d.Day, &d.Used, &d.Overage}, func() error {
			at[key].Days = append(at[key].Days, d)
			return nil
		})
	}
	if err != nil {
		return err
	}
	for k, w := range waiting {
		for _, d := range w {
			at[k].addWaiting(d, s.AsOf)
		}
	}
	var i StatementInvoice
	rows, err = tx.Query(ctx, statementInvoices, keys)
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&key, &i.Invoice, &i.Number, &i.Status, &i.URL, &i.Currency, &i.Units, &i.Credited, &i.Quantity, &i.Amount}, func() error {
			at[key].Invoiced = append(at[key].Invoiced, i)
			return nil
		})
	}
	return err
}

// addWaiting puts what lies in the inbox on the day that it is read, at most the period's last one.
func (l *StatementLine) addWaiting(d StatementDay, now time.Time) {
	last := l.Ends.Add(-time.Microsecond)
	if now.Before(last) {
		last = now
	}
	d.Day = time.Date(last.Year(), last.Month(), last.Day(), 0, 0, 0, 0, time.UTC)
	if n := len(l.Days); n > 0 && !l.Days[n-1].Day.Before(d.Day) {
		l.Days[n-1].Used += d.Used
		l.Days[n-1].Overage += d.Overage
		return
	}
	l.Days = append(l.Days, d)
}
