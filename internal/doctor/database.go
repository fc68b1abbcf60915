package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/schema"
	"github.com/weirhq/weir/usage"
)

const (
	oldestServer = 140000
	connectTime  = 10 * time.Second
	noticeTime   = 5 * time.Second
	warnOffset   = 30 * time.Second
)

// database connects and looks at the server, its clock, and what lies between. It reports whether to go on.
func (e *examination) database(ctx context.Context) bool {
	if e.cfg.DatabaseURL == "" {
		e.wrong("database", "set DATABASE_URL: postgres://user:password@host:5432/name", "no database is named")
		return false
	}
	cfg, err := pgxpool.ParseConfig(e.cfg.DatabaseURL)
	if err != nil {
		e.wrong("database", "correct DATABASE_URL: postgres://user:password@host:5432/name", "the database's URL cannot be read: %v", err)
		return false
	}
	cfg.ConnConfig.ConnectTimeout = connectTime
	mode := cfg.ConnConfig.DefaultQueryExecMode
	// The doctor itself must work through any pooler.
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	if e.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		e.wrong("database", "correct DATABASE_URL", "the database cannot be used: %v", err)
		return false
	}
	var number int
	var version string
	var offset float64
	sent := time.Now()
	err = e.pool.QueryRow(ctx, "SELECT current_setting('server_version_num')::int, current_setting('server_version'), extract(epoch FROM clock_timestamp())::double precision").
		Scan(&number, &version, &offset)
	if err != nil {
		e.pool.Close()
		e.wrong("database", "check that it runs, that this machine reaches it, and the name, user and password in DATABASE_URL", "the database does not answer: %v", err)
		return false
	}
	if number < oldestServer {
		e.wrong("database", "upgrade to PostgreSQL 14 or later", "PostgreSQL %s is too old", version)
	} else {
		e.ok("database", "PostgreSQL %s", version)
	}
	e.ok("extensions", "none is needed")
	middle := float64(sent.UnixNano())/1e9 + time.Since(sent).Seconds()/2
	e.clock("clock", "this machine's", time.Duration((offset-middle)*float64(time.Second)))
	e.pooler(ctx, mode)
	return true
}

func (e *examination) clock(check, whose string, offset time.Duration) {
	if offset.Abs() > warnOffset {
		e.warn(check, "run an NTP client on the database's machine and on this one", "the database's clock is %s off %s", age(offset), whose)
		return
	}
	e.ok(check, "the database's clock is %s off %s", offset.Round(time.Millisecond), whose)
}

// pooler tells a pooler by the process id that it makes up for its clients, and its mode by two clients that share one
// connection to the server.
func (e *examination) pooler(ctx context.Context, mode pgx.QueryExecMode) {
	first, err := e.pool.Acquire(ctx)
	if err != nil {
		e.warn("pooler", "look at the database's max_connections and the pooler's limits", "a connection was refused: %v", err)
		return
	}
	defer first.Release()
	second, err := e.pool.Acquire(ctx)
	if err != nil {
		e.warn("pooler", "look at the database's max_connections and the pooler's limits", "a second connection was refused: %v", err)
		return
	}
	defer second.Release()
	claimed, real := [2]uint32{first.Conn().PgConn().PID(), second.Conn().PgConn().PID()}, [2]uint32{}
	for i, c := range []*pgxpool.Conn{first, second} {
		if err := c.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&real[i]); err != nil {
			e.wrong("pooler", "read the pooler's log", "a connection was lost: %v", err)
			return
		}
	}
	switch {
	case claimed == real:
		e.ok("pooler", "none: connections go to the server itself")
		return
	case real[0] != real[1]:
		e.ok("pooler", "a pooler in session mode, or one that is not busy")
	default:
		e.ok("pooler", "a pooler in transaction mode")
	}
	if mode == pgx.QueryExecModeCacheStatement {
		e.wrong("pooler", "add default_query_exec_mode=cache_describe to DATABASE_URL", "named prepared statements are on, which a pooler in transaction mode loses (PgBouncer before 1.21 in any case)")
	}
	if e.cfg.ListenURL == "" {
		e.wrong("pooler", "set WEIR_LISTEN_URL to the server's own address", "LISTEN goes through a pooler")
	}
}

// listen sends a notice by one connection and waits for it on another.
func (e *examination) listen(ctx context.Context) {
	url, variable := e.cfg.ListenURL, "WEIR_LISTEN_URL"
	if url == "" {
		url, variable = e.cfg.DatabaseURL, "DATABASE_URL"
	}
	ctx, stop := context.WithTimeout(ctx, connectTime+noticeTime)
	defer stop()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		e.wrong("listen", "correct "+variable+": it must reach the server itself", "no connection for LISTEN: %v", err)
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	channel := "weir_doctor_" + strings.ToLower(rand.Text())
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		e.wrong("listen", "set WEIR_LISTEN_URL to the server's own address", "LISTEN is refused: %v", err)
		return
	}
	if _, err := e.pool.Exec(ctx, "SELECT pg_notify($1, 'x')", channel); err != nil {
		e.wrong("listen", "look at the database's log", "NOTIFY is refused: %v", err)
		return
	}
	waiting, cancel := context.WithTimeout(ctx, noticeTime)
	defer cancel()
	if _, err := conn.WaitForNotification(waiting); err != nil {
		e.wrong("listen", "set WEIR_LISTEN_URL to the server's own address, of the same database", "a notice did not arrive within %s: nodes learn of changes a second late", noticeTime)
		return
	}
	e.ok("listen", "a notice arrives")
}

// schema looks at Weir's tables and reports whether the rest can be read.
func (e *examination) schema(ctx context.Context) bool {
	switch err := schema.Check(ctx, e.pool); {
	case errors.Is(err, schema.ErrNotMigrated):
		e.wrong("schema", "run `worker migrate`", "the database has no weir schema")
		return false
	case errors.Is(err, schema.ErrWrongVersion):
		e.wrong("schema", "run `worker migrate` with the newest program, then restart the others", "%v", err)
		return false
	case err != nil:
		e.wrong("schema", "grant this role the weir schema: GRANT USAGE ON SCHEMA weir, and its tables and functions", "the schema cannot be read: %v", err)
		return false
	}
	at, err := schema.At(ctx, e.pool)
	switch {
	case err != nil:
		e.wrong("schema", "look at the database's log", "%v", err)
		return false
	case at > schema.Version():
		e.warn("schema", "bring this program to the version that migrated the database", "version %d is one ahead of this program's: it works, and no newer one will", at)
	default:
		e.ok("schema", "version %d", at)
	}
	inst, err := usage.ReadInstallation(ctx, e.pool)
	if err == nil {
		e.now, err = usage.Now(ctx, e.pool)
	}
	if err == nil {
		e.biller, err = billing.New(e.pool, billing.Config{Stripe: e.cfg.Stripe, Clock: fixed(e.now), Logger: e.cfg.Logger})
	}
	if err != nil {
		e.wrong("schema", "look at the database's log", "the installation cannot be read: %v", err)
		return false
	}
	if inst.Simulated {
		if e.cfg.Stripe != nil && e.cfg.Stripe.Live() {
			e.wrong("clock", "use another database, or a test key", "this database simulates its clock, as demos and tests do, and the key is live")
		} else {
			e.warn("clock", "use another database for production", "this database simulates its clock, as demos and tests do")
		}
	}
	return true
}

// fixed is a clock that shows one instant: an examination takes no time.
type fixed time.Time

func (f fixed) Now() time.Time { return time.Time(f) }
