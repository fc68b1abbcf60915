package pgtest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// The names of databases made here, each followed by the server's time in
// seconds: of one test, of a template, of a template that is being built.
const (
	testPrefix     = "weir_test_"
	templatePrefix = "weir_template_"
	buildingPrefix = "weir_building_"
)

const (
	testAge        = time.Hour      // a test's database may be dropped when older than that
	templateAge    = 24 * time.Hour // a template is used until it is that old
	templateMargin = 2 * time.Hour  // and may be dropped that much later
)

// admin is a connection to the maintenance database of the server.
type admin struct {
	conn *pgx.Conn
	url  string
	now  int64 // the server's time in seconds
}

func withAdmin(ctx context.Context, url string, do func(*admin) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	a := &admin{conn: conn, url: url}
	if err := conn.QueryRow(ctx, "SELECT extract(epoch FROM clock_timestamp())::bigint").Scan(&a.now); err != nil {
		return err
	}
	return do(a)
}

func (a *admin) exec(ctx context.Context, sql string) error {
	_, err := a.conn.Exec(ctx, sql)
	return err
}

// create makes a database for one test and returns its name.
func (a *admin) create(ctx context.Context, template string) (string, error) {
	name := fmt.Sprintf("%s%d_%s", testPrefix, a.now, strings.ToLower(rand.Text()[:12]))
	return name, a.copy(ctx, name, template)
}

func (a *admin) copy(ctx context.Context, name, template string) error {
	return a.exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" TEMPLATE "+pgx.Identifier{template}.Sanitize())
}

// template returns the database to copy for key, and builds it if need be. One
// process builds, others wait for it. What is being built has another name, so
// a build that was killed is never taken for a template.
func (a *admin) template(ctx context.Context, key string, migrate func(context.Context, string) error) (string, error) {
	sum := sha256.Sum256([]byte(key))
	id := hex.EncodeToString(sum[:8]) + "_"
	if found, err := a.current(ctx, id); err != nil || found != "" {
		return found, err
	}
	const lock = "SELECT pg_advisory_lock(hashtextextended($1, 0))"
	if _, err := a.conn.Exec(ctx, lock, templatePrefix+id); err != nil {
		return "", fmt.Errorf("wait for the template: %w", err)
	}
	// The lock goes with the connection, or here.
	defer func() {
		const unlock = "SELECT pg_advisory_unlock(hashtextextended($1, 0))"
		_, _ = a.conn.Exec(ctx, unlock, templatePrefix+id)
	}()
	if found, err := a.current(ctx, id); err != nil || found != "" {
		return found, err
	}
	return a.build(ctx, id, migrate)
}

// current returns the newest template of an id that is not too old, or "".
func (a *admin) current(ctx context.Context, id string) (string, error) {
	names, err := a.named(ctx, templatePrefix+id)
	if err != nil {
		return "", err
	}
	newest, stamp := "", a.now-int64(templateAge.Seconds())
	for _, name := range names {
		if made, ok := stampOf(name); ok && made > stamp {
			newest, stamp = name, made
		}
	}
	return newest, nil
}

func (a *admin) build(ctx context.Context, id string, migrate func(context.Context, string) error) (string, error) {
	suffix := id + strconv.FormatInt(a.now, 10)
	building, final := buildingPrefix+suffix, templatePrefix+suffix
	if err := a.exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{building}.Sanitize()+" WITH (FORCE)"); err != nil {
		return "", err
	}
	if err := a.copy(ctx, building, "template0"); err != nil {
		return "", err
	}
	url, err := withDatabase(a.url, building)
	if err != nil {
		return "", err
	}
	if err := migrate(ctx, url); err != nil {
		drop := a.exec(ctx, "DROP DATABASE "+pgx.Identifier{building}.Sanitize()+" WITH (FORCE)")
		return "", errors.Join(fmt.Errorf("build the template: %w", err), drop)
	}
	if err := a.exec(ctx, "ALTER DATABASE "+pgx.Identifier{building}.Sanitize()+" RENAME TO "+pgx.Identifier{final}.Sanitize()); err != nil {
		return "", fmt.Errorf("build the template, which migrate must leave without connections: %w", err)
	}
	return final, nil
}

// sweep drops what killed runs left behind.
func (a *admin) sweep(ctx context.Context) error {
	for prefix, age := range map[string]time.Duration{
		testPrefix:     testAge,
		buildingPrefix: testAge,
		templatePrefix: templateAge + templateMargin,
	} {
		names, err := a.named(ctx, prefix)
		if err != nil {
			return err
		}
		for _, name := range names {
			made, ok := stampOf(name)
			if !ok || a.now-made < int64(age.Seconds()) {
				continue
			}
			if err := a.dropUnused(ctx, name); err != nil {
				return fmt.Errorf("drop database %s, left by an earlier run: %w", name, err)
			}
		}
	}
	return nil
}

func (a *admin) dropUnused(ctx context.Context, name string) error {
	var used bool
	const query = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = $1)"
	if err := a.conn.QueryRow(ctx, query, name).Scan(&used); err != nil || used {
		return err
	}
	return a.exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize())
}

// named returns the databases whose names start with prefix.
func (a *admin) named(ctx context.Context, prefix string) ([]string, error) {
	rows, err := a.conn.Query(ctx, "SELECT datname::text FROM pg_database WHERE starts_with(datname, $1)", prefix)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// stampOf returns the time in a database's name.
func stampOf(name string) (int64, bool) {
	for part := range strings.SplitSeq(name, "_") {
		// Ids are hexadecimal or longer; a time in seconds has 10 digits.
		if stamp, err := strconv.ParseInt(part, 10, 64); err == nil && len(part) == 10 {
			return stamp, true
		}
	}
	return 0, false
}

// withDatabase returns base, a URL or a keyword/value string, with another
// database.
func withDatabase(base, name string) (string, error) {
	if !strings.HasPrefix(base, "postgres://") && !strings.HasPrefix(base, "postgresql://") {
		return base + " dbname=" + name, nil
	}
	u, err := url.Parse(base)
	if err != nil {
		return "", fmt.Errorf("read DATABASE_URL: %w", err)
	}
	q := u.Query()
	q.Del("dbname")
	q.Del("database")
	u.Path, u.RawPath, u.RawQuery = "/"+name, "", q.Encode()
	return u.String(), nil
}
