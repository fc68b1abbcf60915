package main

import (
	"fmt"

	"github.com/weirhq/weir/internal/schema"
	"github.com/weirhq/weir/jobs"
)

type migrateCmd struct{}

// Run brings Weir's tables and River's to this program's versions.
func (migrateCmd) Run(c *call) error {
	pool, err := c.open()
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
	if len(applied) == 0 {
		_, _ = fmt.Fprintf(c.out, "the schema is at version %d already\n", schema.Version())
		return nil
	}
	_, _ = fmt.Fprintf(c.out, "migrated the schema to version %d\n", schema.Version())
	return nil
}
