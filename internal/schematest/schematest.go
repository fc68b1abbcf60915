// Package schematest gives tests a fresh database with Weir's schema in it.
package schematest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/internal/schema"
)

// URL returns the connection URL of a fresh, migrated database, which is dropped when t ends. It is an installation of
// its own.
func URL(t testing.TB) string {
	t.Helper()
	url := pgtest.Migrated(t, "weir-"+schema.Fingerprint(), Migrate)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("open test database: %v", err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), "UPDATE weir.installation SET id = gen_random_uuid()"); err != nil {
		t.Fatalf("name the test installation: %v", err)
	}
	return url
}

// Pool returns a pool on a fresh, migrated database.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return pgtest.Pool(t, URL(t))
}

// Migrate brings the database behind url to the newest version.
func Migrate(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = schema.Migrate(ctx, conn)
	return err
}
