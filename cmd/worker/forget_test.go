package main

import (
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/pgtest"
)

// After a person was forgotten no row says who it was but those of append-only ledgers, and every amount is what it was.
func TestAForgottenAccountKeepsItsAmounts(t *testing.T) {
	t.Parallel()
	p := newMigrated(t)
	p.do("plans", "apply")
	const who = "planted@example.com"
	a := spend(t, p.env["DATABASE_URL"], who, 90)
	require.True(t, a.Admitted())
	p.do("override", "--included", "200", "--reason", "planted wanted it", who, "events")
	p.sql(`INSERT INTO weir.contacts SELECT id, 'planted@example.com', 'planted', now() FROM weir.accounts`)
	p.sql(`INSERT INTO weir.customers (customer, livemode, seen_at, account_id) SELECT 'cus_1', false, now(), id FROM weir.accounts`)
	p.sql(`INSERT INTO weir.webhook_events (event, type, livemode, customer, body, received_at, state) VALUES
		('evt_1', 'customer.updated', false, 'cus_1', '{"email":"planted@example.com"}', now(), 'done'),
		('evt_2', 'customer.updated', false, 'cus_2', '{"email":"other@example.com"}', now(), 'done')`)
	p.sql(`SELECT weir.find('bad_reference', 'planted@example.com', id, 'planted is no account', now()) FROM weir.accounts`)
	before := totals(p, who)

	p.sql("UPDATE weir.accounts SET plan = 'pro', anchor = now()")
	_, err := p.fails(exitUsage, "forget", "--reason", "they asked for it", "--yes", who)
	require.ErrorContains(t, err, "live subscription")
	p.sql("UPDATE weir.accounts SET plan_until = now() - interval '1 second'")
	_, err = p.fails(exitUsage, "forget", "--reason", "they asked for it", who)
	require.ErrorContains(t, err, "--yes")

	var done billing.Forgotten
	require.NoError(t, json.Unmarshal([]byte(p.do("--json", "forget", "--reason", "they asked for it", "--yes", who)), &done))
	require.Equal(t, billing.Forgotten{Name: done.Name, Contacts: 1, Answers: 1, Events: 1, Findings: 1, Customers: 1}, done)
	require.Equal(t, before, totals(p, done.Name), "no unit has moved")
	p.mustFail(exitFailed, "usage", "show", who)
	p.mustFail(exitUsage, "forget", "--reason", "they asked for it", "--yes", who)

	for _, name := range planted(p) {
		require.Contains(t, []string{"audit", "adjustments", "mapping_log", "plan_log"}, name, "a table that is no append-only ledger still says who it was")
	}
	again := spend(t, p.env["DATABASE_URL"], who, 1)
	require.EqualValues(t, 1, again.Used, "the id is free, and a new account has it")
}

func totals(p *place, account string) []totalJSON {
	p.Helper()
	var all []totalJSON
	require.NoError(p, json.Unmarshal([]byte(p.do("--json", "usage", "show", account)), &all))
	require.NotEmpty(p, all)
	return all
}

// planted are the tables in which any row, as text, has the word.
func planted(p *place) []string {
	p.Helper()
	db := pgtest.Pool(p.T, p.env["DATABASE_URL"])
	rows, err := db.Query(p.Context(), "SELECT table_name FROM information_schema.tables WHERE table_schema = 'weir' AND table_type = 'BASE TABLE'")
	require.NoError(p, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(p, err)
	require.Greater(p, len(tables), 30)
	var found []string
	for _, name := range tables {
		var n int
		require.NoError(p, db.QueryRow(p.Context(), "SELECT count(*) FROM "+pgx.Identifier{"weir", name}.Sanitize()+" x WHERE x::text LIKE '%planted%'").Scan(&n))
		if n > 0 {
			found = append(found, name)
		}
	}
	return found
}
