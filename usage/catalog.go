package usage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/plans"
)

// Published is a plan file as the database has it: the terms that everybody computes with.
type Published struct {
	Number  int64
	Hash    string
	Catalog *plans.Catalog
	Known   []string // features of all catalogs: periods that run may have some that this one has lost
}

// LatestCatalog reads the catalog that counts; ErrNoCatalog when none was published.
func LatestCatalog(ctx context.Context, db DB) (Published, error) {
	var p Published
	var body []byte
	err := db.QueryRow(ctx, `SELECT number, hash, body, ARRAY(SELECT f.name FROM weir.features f ORDER BY f.id)
		FROM weir.catalogs ORDER BY number DESC LIMIT 1`).Scan(&p.Number, &p.Hash, &body, &p.Known)
	if errors.Is(err, pgx.ErrNoRows) {
		return p, ErrNoCatalog
	}
	if err != nil {
		return p, wrap("read the catalog", err)
	}
	p.Catalog = new(plans.Catalog)
	if err := json.Unmarshal(body, p.Catalog); err != nil {
		return p, fmt.Errorf("read catalog %d: %w", p.Number, err)
	}
	return p, nil
}

// Publish makes a plan file the next catalog, unless it is the latest one already, and tells the nodes. Terms of periods
// that have begun stay as they are; those that have not begun get the new ones, in short transactions, and the nodes are
// told again: a publication that was broken off anywhere is completed by the next one of the same file. It returns the
// number that counts afterwards.
func Publish(ctx context.Context, db DB, c *plans.Catalog, by string, now time.Time) (number int64, changed bool, err error) {
	body, err := json.Marshal(c)
	if err != nil {
		return 0, false, fmt.Errorf("publish plans: %w", err)
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		// Publications wait for each other and for the fold: terms change under it. The gate keeps out who is just
		// making a period by the catalog before.
		if _, err := tx.Exec(ctx, "SELECT FROM weir.fold FOR UPDATE"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT weir.catalog_gate(true)"); err != nil {
			return err
		}
		var hash string
		err := tx.QueryRow(ctx, "SELECT number, hash FROM weir.catalogs ORDER BY number DESC LIMIT 1").Scan(&number, &hash)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if hash == c.Hash() {
			return nil
		}
		number, changed = number+1, true
		_, err = tx.Exec(ctx, `INSERT INTO weir.catalogs (number, hash, body, default_plan, published_at, published_by)
			VALUES ($1, $2, $3, $4, $5, $6)`, number, c.Hash(), body, c.DefaultPlan().Name, now, by)
		if err != nil {
			return err
		}
		if err := insertTerms(ctx, tx, number, c); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "SELECT weir.touch(NULL)")
		return err
	})
	if err != nil {
		return 0, false, wrap("publish plans", err)
	}
	renewed, err := renewUnbegun(ctx, db, number, now)
	if err != nil {
		return number, changed, wrap("publish plans", err)
	}
	// Whoever ends a publication that another began doesn't know what that one had renewed.
	_, err = db.Exec(ctx, `WITH told AS (UPDATE weir.catalogs SET told = true WHERE number = $1 AND (NOT told OR $2) RETURNING number)
		SELECT weir.touch(NULL) FROM told WHERE $2 OR $3`, number, renewed > 0, !changed)
	return number, changed, wrap("publish plans", err)
}

// renewChunk is how many periods get new terms in one transaction, which holds up the fold.
const renewChunk = 500

func renewUnbegun(ctx context.Context, db DB, number int64, now time.Time) (int64, error) {
	var all int64
	after, id := now, int64(0)
	for {
		var n int64
		err := db.QueryRow(ctx, "SELECT p_after, p_after_id, renewed FROM weir.renew_chunk($1, $2, $3, $4, $5)", number, now, after, id, renewChunk).
			Scan(&after, &id, &n)
		if err != nil {
			return all, err
		}
		all += n
		if n < renewChunk {
			return all, nil
		}
	}
}

// ApplyNow changes an account's open periods to the terms of a published catalog, forward only: what was counted stays
// as it was counted. Ended periods never change. Publish alone changes those that have not begun.
func ApplyNow(ctx context.Context, db DB, account, catalog int64, now time.Time) error {
	_, err := db.Exec(ctx, "SELECT weir.apply_terms($1, $2, $3)", account, catalog, now)
	return wrap("apply plans now", err)
}

func insertTerms(ctx context.Context, tx pgx.Tx, number int64, c *plans.Catalog) error {
	for _, f := range c.Features() {
		if _, err := tx.Exec(ctx, "INSERT INTO weir.features (name) VALUES ($1) ON CONFLICT DO NOTHING", f.Name); err != nil {
			return err
		}
	}
	for _, p := range c.Plans() {
		for _, q := range p.Quotas() {
			if err := insertQuota(ctx, tx, number, c, p, q); err != nil {
				return err
			}
		}
	}
	return nil
}

func insertQuota(ctx context.Context, tx pgx.Tx, number int64, c *plans.Catalog, p plans.Plan, q plans.Quota) error {
	f, _ := c.Feature(q.Feature)
	var meter, unitAmount *string
	if f.Meter != "" {
		meter = &f.Meter
	}
	if q.BillOverage && !q.Price.FromStripe() {
		s := q.Price.UnitAmountDecimal()
		unitAmount = &s
	}
	_, err := tx.Exec(ctx, `INSERT INTO weir.plan_terms (catalog, plan, feature_id, included, maximum, on_exceeded, when_not_billable,
			when_away, enforce, on_upgrade, early_end, late, per_quantity, meter, unit_amount, warn_at)
		SELECT $1, $2, f.id, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15::text::numeric, coalesce($16::integer[], '{}') FROM weir.features f WHERE f.name = $3`,
		number, p.Name, q.Feature, finite(q.Included), finite(q.Max), pick(q.BillOverage, "bill_overage", "block"), string(p.NotBillable),
		pick(q.ContinueWithoutDatabase, "continue", "unavailable"), pick(q.Strict, "strict", "leases"),
		pick(p.ForgiveOnUpgrade, "forgive", "keep"), pick(p.FreshAfterEarlyEnd, "fresh", "carry"), string(p.Late),
		q.PerQuantity, meter, unitAmount, q.WarnAt)
	return err
}

func finite(a plans.Amount) *int64 {
	if n, ok := a.Units(); ok {
		return &n
	}
	return nil
}

func pick(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
