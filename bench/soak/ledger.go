package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

// settled reports whether every period that has ended is closed and invoiced, and everything is folded.
func (s *stack) settled(ctx context.Context) bool {
	var open int64
	err := s.db.QueryRow(ctx, `SELECT (SELECT count(*) FROM weir.inbox) + (SELECT count(*) FROM weir.keys k JOIN weir.periods p ON p.id = k.period_id
		JOIN weir.totals t ON t.key = k.key LEFT JOIN weir.books b ON b.key = k.key
		WHERE p.ends <= $1 AND p.state <> 'void' AND t.used > 0 AND (b.key IS NULL OR b.pending <> 0))`,
		s.clock.Now().Add(-2*time.Hour)).Scan(&open)
	return err == nil && open == 0
}

// compare holds every number against every other and returns how many disagree.
func (s *stack) compare(ctx context.Context, out io.Writer, t *traffic) (wrong int, err error) {
	fmt.Fprintln(out, "| account | admitted | unsure | stored | free | overage | invoiced | pending | late | forgiven | not billable | at Stripe |  |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	for _, a := range t.accounts {
		totals, err := usage.Totals(ctx, s.db, a.id, time.Time{})
		if err != nil {
			return 0, err
		}
		var used, free, over int64
		sound := true
		for _, x := range totals {
			used, free, over = used+x.Used, free+x.Free, over+x.Overage
			sound = sound && x.Used == x.Free+x.Overage && x.Granted <= x.Ceiling && x.Used <= x.Ceiling
		}
		var booked, invoiced, pending, late, forgiven, not int64
		err = s.db.QueryRow(ctx, `SELECT coalesce(sum(b.overage), 0)::bigint, coalesce(sum(b.invoiced), 0)::bigint, coalesce(sum(b.pending), 0)::bigint,
			coalesce(sum(b.late), 0)::bigint, coalesce(sum(b.forgiven), 0)::bigint, coalesce(sum(b.not_billable), 0)::bigint
			FROM weir.books b JOIN weir.keys k ON k.key = b.key JOIN weir.periods p ON p.id = k.period_id JOIN weir.accounts a ON a.id = p.account_id
			WHERE a.account = $1`, a.id).Scan(&booked, &invoiced, &pending, &late, &forgiven, &not)
		if err != nil {
			return 0, err
		}
		var atStripe int64
		for _, e := range s.stripe.MeterEvents() {
			if e.Customer == a.customer && a.customer != "" && e.Rejected == "" && !e.Cancelled {
				atStripe += e.Value
			}
		}
		admitted, unsure := a.admitted.Load(), a.unsure.Load()
		ok := sound && admitted <= used && used <= admitted+unsure && booked == invoiced+pending+late+forgiven+not &&
			// What Stripe took too late for its invoice is late in the books.
			(a.customer == "" || booked == over && invoiced+pending <= atStripe && atStripe <= over)
		mark := "="
		if !ok {
			mark = "**≠**"
			wrong++
		}
		fmt.Fprintf(out, "| %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %s |\n", a.id, admitted, unsure, used, free, over, invoiced, pending, late, forgiven, not, atStripe, mark)
	}
	return wrong, s.overshoots(ctx, out)
}

// overshoots prints what came of the exceptions to the cap, by cause: it names the culprit where an account disagrees.
func (s *stack) overshoots(ctx context.Context, out io.Writer) error {
	rows, err := s.db.Query(ctx, `SELECT a.account, o.cause, count(*), sum(o.units)::bigint FROM weir.overshoots o JOIN weir.keys k ON k.key = o.key
		JOIN weir.periods p ON p.id = k.period_id JOIN weir.accounts a ON a.id = p.account_id GROUP BY 1, 2 ORDER BY 1, 2`)
	if err != nil {
		return err
	}
	var account, cause string
	var times, units int64
	_, err = pgx.ForEachRow(rows, []any{&account, &cause, &times, &units}, func() error {
		fmt.Fprintf(out, "Beyond leases: %s, %s: %d times, %d units\n", account, cause, times, units)
		return nil
	})
	return err
}
