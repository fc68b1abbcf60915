// Package schema holds the database's migrations and applies them.
//
// All tables live in the PostgreSQL schema "weir". Migrations are numbered, embedded in the binary, and applied only
// on request (worker migrate, or worker serve with --migrate); a program that merely uses the database calls Check.
package schema

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed migrations/*.sql
var files embed.FS

// Errors that callers branch on. Both name the command that mends them.
var (
	ErrNotMigrated  = errors.New("the database has no weir schema: run `worker migrate` first")
	ErrWrongVersion = errors.New("the database's schema version does not fit this program")
)

// lockKey serializes migrations of all programs; any constant does.
const lockKey = 0x57454952

type migration struct {
	version int
	name    string
	sql     string
}

// Version is the schema version that this program was built for.
func Version() int {
	all := migrations()
	return all[len(all)-1].version
}

// Fingerprint identifies the migrations' whole text; tests key their template database by it.
func Fingerprint() string {
	h := sha256.New()
	for _, m := range migrations() {
		h.Write([]byte(m.name))
		h.Write([]byte(m.sql))
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// Migrate brings the database to Version, each migration in a transaction of its own. It may run in several programs
// at once: one works, the others wait and find it done. A database that is ahead of this program is left alone; Check
// says whether the program can still use it. It returns the versions that it applied.
func Migrate(ctx context.Context, conn *pgx.Conn) ([]int, error) {
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", lockKey); err != nil {
		return nil, fmt.Errorf("migrate: take the lock: %w", err)
	}
	defer func() { _, _ = conn.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", lockKey) }()
	_, err := conn.Exec(ctx, `CREATE SCHEMA IF NOT EXISTS weir;
		CREATE TABLE IF NOT EXISTS weir.schema_version (
			version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())`)
	if err != nil {
		return nil, fmt.Errorf("migrate: create the schema: %w", err)
	}
	at, err := current(ctx, conn)
	if err != nil {
		return nil, err
	}
	var applied []int
	for _, m := range migrations() {
		if m.version <= at {
			continue
		}
		if err := apply(ctx, conn, m); err != nil {
			return applied, fmt.Errorf("migrate to version %d (%s): %w", m.version, m.name, err)
		}
		applied = append(applied, m.version)
	}
	if len(applied) > 0 {
		// Plans that were made for empty tables would scan them later.
		if _, err := conn.Exec(ctx, "ANALYZE"); err != nil {
			return applied, fmt.Errorf("migrate: analyze: %w", err)
		}
	}
	return applied, nil
}

func apply(ctx context.Context, conn *pgx.Conn, m migration) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, m.sql); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, withoutJIT); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO weir.schema_version (version, name) VALUES ($1, $2)", m.version, m.name)
		return err
	})
}

// withoutJIT switches just-in-time compilation off in every function that switches sequential scans off. Such a plan
// costs 1e10 as soon as it reads a single-row table, far above jit_above_cost, and would be compiled for some 90 ms.
const withoutJIT = `DO $$
DECLARE f regprocedure;
BEGIN
	FOR f IN SELECT p.oid FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
		WHERE n.nspname = 'weir' AND 'enable_seqscan=off' = ANY (p.proconfig) AND NOT 'jit=off' = ANY (p.proconfig)
	LOOP
		EXECUTE format('ALTER FUNCTION %s SET jit = off', f);
	END LOOP;
END $$`

// Querier is what Check reads with; pgx connections, pools and transactions fit.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Check returns nil when this program may use the database: its version is Version, or the next one, so that a
// database may be migrated before the last program of the old version has gone. Otherwise the error wraps
// ErrNotMigrated or ErrWrongVersion, or is the database's own.
func Check(ctx context.Context, q Querier) error {
	at, err := current(ctx, q)
	if err != nil {
		return err
	}
	want := Version()
	switch {
	case at == 0:
		return ErrNotMigrated
	case at < want:
		return fmt.Errorf("%w: it is at %d, this program needs %d: run `worker migrate`", ErrWrongVersion, at, want)
	case at > want+1:
		return fmt.Errorf("%w: it is at %d, this program knows %d and the next one: install a newer program", ErrWrongVersion, at, want)
	}
	return nil
}

func current(ctx context.Context, q Querier) (int, error) {
	var at int
	err := q.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM weir.schema_version").Scan(&at)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "3F000") { // undefined table, undefined schema
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the schema version: %w", err)
	}
	return at, nil
}

// migrations returns all migrations in their order. The files are embedded, so a fault in their names is a
// programming error that the package's test meets.
func migrations() []migration {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		panic(err)
	}
	out := make([]migration, 0, len(names))
	for _, n := range names {
		base := strings.TrimSuffix(strings.TrimPrefix(n, "migrations/"), ".sql")
		num, _, _ := strings.Cut(base, "_")
		v, err := strconv.Atoi(num)
		if err != nil || v != len(out)+1 {
			panic("schema: migration " + n + " is out of order")
		}
		sql, err := files.ReadFile(n)
		if err != nil {
			panic(err)
		}
		out = append(out, migration{v, base, string(sql)})
	}
	return out
}
