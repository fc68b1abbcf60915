package books

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

// Match is what an id or the beginning of one leads to.
type Match struct {
	What     string // account, customer, subscription, invoice, report or node
	ID       string
	Account  string // that it belongs to; empty: to none
	Customer string // at Stripe; empty where it has none
}

// Lookup finds what somebody looks for: an account by its id or the beginning of it, a customer (cus_…), subscription
// (sub_…) or invoice (in_…) by its id at Stripe, an
// invoice by its number too, a report by its identifier (weir:…), a node by its number. Exact
// matches come first; at most most are found, and each is found by an index.
func Lookup(ctx context.Context, db usage.DB, text string, most int) ([]Match, error) {
	if text = strings.TrimSpace(text); text == "" || len(text) > usage.MaxAccountBytes || strings.ContainsRune(text, 0) || strings.ToValidUTF8(text, "") != text {
		return nil, nil
	}
	var all []Match
	err := inSnapshot(ctx, db, func(tx pgx.Tx) error {
		for _, q := range lookups(text) {
			m := Match{What: q.what}
			err := tx.QueryRow(ctx, q.sql, q.arg).Scan(&m.ID, &m.Account, &m.Customer)
			if errors.Is(err, pgx.ErrNoRows) {
				continue
			}
			if err != nil {
				return err
			}
			all = append(all, m)
		}
		accounts, err := accountsFrom(ctx, tx, text, text, most-len(all))
		for _, a := range accounts {
			all = append(all, Match{What: "account", ID: a.Account, Account: a.Account, Customer: a.Customer})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look up: %w", err)
	}
	return all, nil
}

type lookup struct {
	what, sql string
	arg       any
}

// lookups are the kinds of ids that a text may be. Ids have an order, so the first one is what was meant.
func lookups(text string) []lookup {
	const mapped = " LEFT JOIN weir.customers c ON c.customer = x.customer LEFT JOIN weir.accounts a ON a.id = c.account_id "
	all := []lookup{{"account", `SELECT x.account, x.account, coalesce((SELECT c.customer FROM weir.customers c WHERE c.account_id = x.id LIMIT 1), '')
		FROM weir.accounts x WHERE x.account = $1`, text}}
	switch {
	case strings.HasPrefix(text, "cus_"):
		all = append(all, lookup{"customer", "SELECT x.customer, coalesce(a.account, ''), x.customer FROM weir.customers x LEFT JOIN weir.accounts a ON a.id = x.account_id WHERE x.customer = $1", text})
	case strings.HasPrefix(text, "sub_"):
		all = append(all, lookup{"subscription", "SELECT x.subscription, coalesce(a.account, ''), x.customer FROM weir.subscriptions x" + mapped + "WHERE x.subscription = $1", text})
	case strings.HasPrefix(text, "in_"):
		all = append(all, lookup{"invoice", "SELECT x.invoice, coalesce(a.account, ''), x.customer FROM weir.invoices x" + mapped + "WHERE x.invoice = $1", text})
	case strings.HasPrefix(text, "weir:"):
		all = append(all, lookup{"report", `SELECT x.identifier, a.account, x.customer FROM weir.reports x JOIN weir.keys k ON k.key = x.key
			JOIN weir.accounts a ON a.id = k.account_id WHERE x.identifier = $1`, text})
	default: // what is printed on an invoice
		all = append(all, lookup{"invoice", "SELECT x.number, coalesce(a.account, ''), x.customer FROM weir.invoices x" + mapped + "WHERE x.number = $1 ORDER BY x.created DESC LIMIT 1", text})
	}
	if id, err := strconv.ParseInt(text, 10, 64); err == nil && id > 0 {
		all = append(all, lookup{"node", "SELECT x.id::text, '', '' FROM weir.nodes x WHERE x.id = $1 AND x.state <> 'internal'", id})
	}
	return all
}

// AccountRow is one account of a list.
type AccountRow struct {
	Account   string
	Plan      string // empty: the default plan
	Customer  string // empty: mapped to none
	Findings  int64  // open ones, counted up to 100
	Shadow    bool
	CreatedAt time.Time
}

// Accounts lists accounts whose ids begin with a prefix, after an id, in byte order; at most most.
func Accounts(ctx context.Context, db usage.DB, prefix, after string, most int) ([]AccountRow, error) {
	var all []AccountRow
	err := inSnapshot(ctx, db, func(tx pgx.Tx) (err error) {
		all, err = accountsFrom(ctx, tx, prefix, after, most)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list accounts: %w", err)
	}
	return all, nil
}

// accountsFrom compares bytes, as the index does: a LIKE with an argument would not use it.
func accountsFrom(ctx context.Context, db usage.DB, prefix, after string, most int) ([]AccountRow, error) {
	if most <= 0 {
		return nil, nil
	}
	rows, err := db.Query(ctx, `
		SELECT a.account, coalesce(a.plan, ''), coalesce((SELECT c.customer FROM weir.customers c WHERE c.account_id = a.id LIMIT 1), ''),
		       (SELECT count(*) FROM (SELECT FROM weir.findings f WHERE f.account_id = a.id AND f.cleared_at IS NULL LIMIT 100) x), a.shadow, a.created_at
		FROM (SELECT * FROM weir.accounts x WHERE x.account ~>~ $2 AND x.account ~>=~ $1 AND x.account ~<=~ ($1 || chr(1114111))
		      ORDER BY x.account USING ~<~ LIMIT $3) a ORDER BY a.account USING ~<~`, prefix, after, most)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[AccountRow])
}
