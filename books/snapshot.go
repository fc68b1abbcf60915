package books

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/usage"
)

// snapshots is what a *pgxpool.Pool and a *pgx.Conn have, and a transaction has not.
type snapshots interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// undoTime bounds the end of a transaction whose reader may have gone.
const undoTime = 5 * time.Second

// snapshot reads in one snapshot, by many short statements.
func snapshot(ctx context.Context, db usage.DB, read func(pgx.Tx) error) error {
	return snapshotWith(ctx, db, "SET LOCAL jit = off", read)
}

// inSnapshot is snapshot for statements that indexes answer.
func inSnapshot(ctx context.Context, db usage.DB, read func(pgx.Tx) error) error {
	return snapshotWith(ctx, db, byIndex, read)
}

func snapshotWith(ctx context.Context, db usage.DB, settings string, read func(pgx.Tx) error) error {
	begin, ok := db.(snapshots)
	if !ok {
		return errors.New("a snapshot needs a pool or a connection")
	}
	tx, err := begin.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		_ = tx.Rollback(ctx) // it has written nothing
	}()
	if _, err := tx.Exec(ctx, settings); err != nil {
		return err
	}
	if err := read(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// byIndex keeps the planner from reading whole tables on a bad guess, and from compiling.
const byIndex = "SET LOCAL enable_seqscan = off; SET LOCAL jit = off"
