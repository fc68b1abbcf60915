package billing

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// CheckDatabase compares the database's system identifier and timeline, and the key's mode, with what was stored. A
// restored or failed-over database may have forgotten what was sent: reports stop until every open window was compared
// with its summary (Reconcile), or a person says so (Resume). A key of the other mode is an error: customers, prices
// and meters of one mode mean nothing in the other.
func (b *Biller) CheckDatabase(ctx context.Context) error {
	var system string
	var timeline int64
	err := b.db.QueryRow(ctx, "SELECT s.system_identifier::text, c.timeline_id FROM pg_control_system() s, pg_control_checkpoint() c").Scan(&system, &timeline)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42501" { // no privilege
		return raise(ctx, b.db, finding{kind: "database_identity", subject: "database", message: "this role may not read pg_control_system: a restored database would not be noticed. GRANT EXECUTE ON FUNCTION pg_control_system(), pg_control_checkpoint() to it"}, b.now())
	}
	if err != nil {
		return fmt.Errorf("read the database's identity: %w", err)
	}
	var before *string
	var line *int64
	var live *bool
	restored := false
	err = b.begin(ctx, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, "SELECT system_identifier, timeline, livemode FROM weir.billing FOR UPDATE").Scan(&before, &line, &live); err != nil {
			return err
		}
		if c := b.cfg.Stripe; c != nil {
			if live != nil && *live != c.Live() {
				return &permanentError{fmt.Errorf("this database belongs to Stripe livemode %t, the key is of livemode %t: use another database for the other mode", *live, c.Live())}
			}
			if _, err := tx.Exec(ctx, "UPDATE weir.billing SET livemode = $1", c.Live()); err != nil {
				return err
			}
		}
		restored = before != nil && (*before != system || *line != timeline)
		_, err := tx.Exec(ctx, "UPDATE weir.billing SET system_identifier = $1, timeline = $2", system, timeline)
		if err == nil && restored {
			_, err = tx.Exec(ctx, `INSERT INTO weir.stops (cause, since, message) VALUES ('restored', $1, 'the database was restored or failed over')
				ON CONFLICT (cause) DO UPDATE SET since = excluded.since`, b.now())
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("check the database's identity: %w", err)
	}
	if restored {
		return b.stop(ctx, "restored", "the database was restored or failed over: reports wait until every open window was compared with its summary")
	}
	return nil
}

// resumeRestored lets sending go on after a restore, once every open window was compared and agreed.
func (b *Biller) resumeRestored(ctx context.Context) error {
	var is bool
	err := b.db.QueryRow(ctx, `
		SELECT EXISTS (SELECT FROM weir.stops WHERE cause = 'restored') AND NOT EXISTS (
			SELECT FROM (SELECT DISTINCT s.customer, s.meter, s.window_start FROM weir.segments s
			             WHERE s.window_end > $1::timestamptz - interval '3 days' AND s.window_start < $1::timestamptz - interval '5 minutes') w
			CROSS JOIN weir.stops p
			LEFT JOIN LATERAL (SELECT x.* FROM weir.summaries x WHERE x.customer = w.customer AND x.meter = w.meter AND x.starts = w.window_start
			                   ORDER BY x.read_at DESC LIMIT 1) x ON true
			WHERE p.cause = 'restored' AND (x.read_at IS NULL OR x.read_at < p.since OR x.found > x.expected OR x.found < x.expected - x.unsure))`, b.now()).Scan(&is)
	if err != nil {
		return fmt.Errorf("look whether every window was compared: %w", err)
	}
	if !is {
		return nil
	}
	return b.resume(ctx, "restored", "every open window agrees with its summary")
}
