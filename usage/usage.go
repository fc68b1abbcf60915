// Package usage is Weir's durable counting: accounts, periods, terms, leases, nodes, the inbox and the fold. It holds
// every table without Stripe in it, and their SQL.
//
// The rules live in the database's functions (internal/schema/migrations), so that every program computes with the
// same ones; this package gives them types. All functions are safe for concurrent use. Instants are arguments and are
// business time: no SQL here decides by now().
package usage

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB is what this package needs of a database: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Limits of what the database takes.
const (
	MaxAccountBytes = 255     // of an account's id
	MaxBatchKeys    = 10_000  // keys in one flush statement
	MaxSettleKeys   = 1_000   // keys in one settling transaction
	TidyRows        = 20_000  // inbox rows that a worker folds before it tidies the inbox
	MaxPruneRows    = 10_000  // rows of one kind in one pruning transaction
	Boundless       = 1 << 62 // the ceiling of what has none
)

// Channels of NOTIFY. Payloads carry ids, never state.
const (
	ChannelRecall   = "weir_recall"   // "key node,node,…": give back what is loose under the key
	ChannelReturned = "weir_returned" // "key": units came back
	ChannelChange   = "weir_change"   // the latest change number
	ChannelInbox    = "weir_inbox"    // rows wait to be folded
	ChannelWarning  = "weir_warning"  // thresholds were reached
)

// Errors that callers branch on.
var (
	ErrNoCatalog = errors.New("no plan file is published yet: run `worker serve --plans FILE`, or `worker plans apply --plans FILE`")
	ErrNotFound  = errors.New("not found")
	ErrRefund    = errors.New("more units than are counted")
)

// wrap names the step and turns the database's own error codes into this package's errors.
func wrap(step string, err error) error {
	if err == nil {
		return nil
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "WR001":
			return fmt.Errorf("%s: %w", step, ErrNoCatalog)
		case "WR002":
			return fmt.Errorf("%s: %w: %s", step, ErrRefund, pg.Message)
		case "P0002": // no_data_found
			return fmt.Errorf("%s: %w", step, ErrNotFound)
		}
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("%s: %w", step, ErrNotFound)
	}
	return fmt.Errorf("%s: %w", step, err)
}
