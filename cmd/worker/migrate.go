package main

import (
	"fmt"

	"github.com/weirhq/weir/internal/schema"
	"github.com/weirhq/weir/jobs"
)

type migrateCmd struct {
	ListenURL string `name:"listen-url" from:"WEIR_LISTEN_URL" placeholder:"URL" help:"Direct database connection, where the other goes through a transaction pooler: migrations take locks of a session ($WEIR_LISTEN_URL)."`
}

// Run brings Weir's tables and River's to this program's versions.
func (m migrateCmd) Run(c *call) error {
	direct := *c
	if m.ListenURL != "" {
		direct.DatabaseURL = m.ListenURL
	}
	pool, err := direct.open()
	if err != nil {
		return err
	}
	defer pool.Close()
	conn, err := pool.Acquire(c.ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	applied, err := schema.Migrate(c.ctx, conn.Conn())
	conn.Release()
	if err != nil {
		return err
	}
	if err := jobs.Migrate(c.ctx, pool); err != nil {
		return err
	}
	at, err := schema.At(c.ctx, pool)
	if err != nil {
		return err
	}
	if applied == nil {
		applied = []int{}
	}
	people := line("migrated the schema to version %d", at)
	switch {
	case at > schema.Version():
		people = line("the schema is at version %d, ahead of this program's %d: nothing was done", at, schema.Version())
	case len(applied) == 0:
		people = line("the schema is at version %d already", at)
	}
	return c.print(map[string]any{"version": at, "applied": applied}, people)
}
