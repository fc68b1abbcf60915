package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/doctor"
	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/usage"
)

// healthy is an installation in which the doctor finds no error.
func healthy(t *testing.T) *place {
	t.Helper()
	p := newMigrated(t)
	p.stripe(stripesim.Config{APIKey: "rk_live_simulator", Start: time.Now()})
	p.do("plans", "apply")
	p.do("plans", "push", "--price", "pro_monthly=49.00/month", "--yes", "--live")
	p.endpoint("*")
	p.env["WEIR_JOURNAL_DIR"] = t.TempDir()
	require.NoError(t, os.Chmod(p.env["WEIR_JOURNAL_DIR"], 0o700))
	return p
}

func (p *place) endpoint(events ...string) string {
	p.Helper()
	e, err := p.sim.API.WebhookEndpoints.New(&stripe.WebhookEndpointParams{
		URL: stripe.String("https://weir.example.com/stripe/webhook"), EnabledEvents: stripe.StringSlice(events), APIVersion: stripe.String("2024-06-20"),
	})
	require.NoError(p, err)
	return e.ID
}

// examine returns the doctor's lines that are at least warnings.
func (p *place) examine(args ...string) (bad []doctor.Line, err error) {
	p.Helper()
	out, errs, err := p.run(append([]string{"--json", "doctor"}, args...)...)
	var all []doctor.Line
	require.NoError(p, json.Unmarshal([]byte(out), &all), "%s%s", out, errs)
	require.NotEmpty(p, all)
	for _, l := range all {
		require.Equal(p, l.Level == doctor.OK, l.Next == "", "a line that is not well has a next step, and no other: %+v", l)
		if l.Level != doctor.OK {
			bad = append(bad, l)
		}
		for _, planted := range []string{p.env["STRIPE_API_KEY"], p.env["STRIPE_WEBHOOK_SECRET"], "planted"} {
			require.True(p, planted == "" || !strings.Contains(l.Message+l.Next, planted), "a secret is in %+v", l)
		}
	}
	return bad, err
}

func TestDoctorFindsAHealthyInstallationWell(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	bad, err := p.examine()
	require.NoError(t, err, bad)
	for _, l := range bad {
		// Nobody has paid yet, and tests keep their journal where tests keep everything.
		require.Contains(t, []string{"webhooks", "mappings", "journal"}, l.Check, l)
	}
	_, err = p.examine("--strict")
	require.Equal(t, exitDisagree, exitCode(err))
	out := p.do("doctor")
	require.Contains(t, out, "ok       database")
}

func TestDoctorKnowsWhoGoesWithoutStripeOnPurpose(t *testing.T) {
	t.Parallel()
	p := newMigrated(t)
	p.do("plans", "apply")
	lines := func(args ...string) string {
		out, _, _ := p.run(append([]string{"doctor"}, args...)...)
		return out
	}
	require.Regexp(t, `error +stripe key +a plan bills overage`, lines())
	require.Regexp(t, `ok +stripe key +none, on purpose`, lines("--no-stripe"))
	p.env["STRIPE_API_KEY"] = "sk_test_1"
	_, err := p.fails(exitUsage, "doctor", "--no-stripe")
	require.ErrorContains(t, err, "exclude each other")
}

// Each broken set-up is named, with its remedy.
func TestDoctorNamesEachBrokenSetUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		breakIt              func(p *place)
		level                doctor.Level
		check, message, next string
	}{
		"no database": {func(p *place) { p.env["DATABASE_URL"] = "" }, doctor.Error, "database", "no database is named", "DATABASE_URL"},
		"the database is away": {func(p *place) { p.env["DATABASE_URL"] = "postgres://weir:planted@127.0.0.1:1/weir" },
			doctor.Error, "database", "does not answer", "name, user and password"},
		"not migrated": {func(p *place) { p.env["DATABASE_URL"] = pgtest.URL(p.T) }, doctor.Error, "schema", "no weir schema", "worker migrate"},
		"schema ahead": {func(p *place) {
			p.sql("INSERT INTO weir.schema_version (version, name) SELECT max(version) + 1, 'next' FROM weir.schema_version")
		}, doctor.Warning, "schema", "one ahead", "this program"},
		"schema too new": {func(p *place) {
			p.sql("INSERT INTO weir.schema_version (version, name) SELECT max(version) + 2, 'next' FROM weir.schema_version")
		}, doctor.Error, "schema", "newer", "worker migrate"},
		"LISTEN elsewhere": {func(p *place) { p.env["WEIR_LISTEN_URL"] = pgtest.URL(p.T) },
			doctor.Error, "listen", "did not arrive", "same database"},
		"LISTEN away": {func(p *place) { p.env["WEIR_LISTEN_URL"] = "postgres://weir:planted@127.0.0.1:1/weir" },
			doctor.Error, "listen", "no connection", "WEIR_LISTEN_URL"},
		"no key":              {func(p *place) { p.env["STRIPE_API_KEY"] = "" }, doctor.Error, "stripe key", "there is no Stripe key", "STRIPE_API_KEY"},
		"a publishable key":   {func(p *place) { p.env["STRIPE_API_KEY"] = "pk_test_1" }, doctor.Error, "stripe key", "no secret or restricted key", "restricted key"},
		"a revoked key":       {func(p *place) { p.env["STRIPE_API_KEY"] = "rk_live_revoked" }, doctor.Error, "stripe key", "does not know the key", "new key"},
		"a key of other mode": {func(p *place) { p.sql("UPDATE weir.billing SET livemode = false") }, doctor.Error, "stripe key", "other mode", "another database"},
		"a key that may not send": {func(p *place) {
			p.sim.Faults().Inject(stripesim.Match{Path: "/v1/billing/meter_events$"}, stripesim.Forbidden())
		}, doctor.Error, "stripe rights", "Billing meter events: write", "permission"},
		"no webhook secret": {func(p *place) { p.env["STRIPE_WEBHOOK_SECRET"] = "" }, doctor.Error, "webhook secret", "no signing secret", "whsec_"},
		"a wrong secret":    {func(p *place) { p.env["STRIPE_WEBHOOK_SECRET"] = "we_1" }, doctor.Error, "webhook secret", "does not begin", "signing secret"},
		"no endpoint":       {func(p *place) { p.drop() }, doctor.Error, "webhook endpoint", "no endpoint", "/stripe/webhook"},
		"endpoint disabled": {func(p *place) {
			_, err := p.sim.API.WebhookEndpoints.Update(p.hook(), &stripe.WebhookEndpointParams{Disabled: stripe.Bool(true)})
			require.NoError(p, err)
		}, doctor.Error, "webhook endpoint", "disabled", "enable it"},
		"endpoint lacks events": {func(p *place) { p.drop(); p.endpoint("invoice.created") }, doctor.Error, "webhook endpoint", "customer.subscription.updated", "add the events"},
		"meter archived":        {func(p *place) { p.deactivate(p.meter()) }, doctor.Error, "meters", "archived", "reactivate"},
		"file not published": {func(p *place) {
			require.NoError(p, os.WriteFile(p.env["WEIR_PLANS"], []byte(strings.Replace(testPlans, "1_000,", "2_000,", 1)), 0o600))
		}, doctor.Warning, "plans", "not the published one", "plans apply"},
		"file is wrong": {func(p *place) {
			require.NoError(p, os.WriteFile(p.env["WEIR_PLANS"], []byte(strings.Replace(testPlans, "quota", "qouta", 1)), 0o600))
		}, doctor.Error, "plans", "qouta", "correct the plan file"},
		"no worker": {func(p *place) {
			p.node(func(db usage.DB, n int64, now time.Time) {
				_, err := usage.Flush(p.Context(), db, usage.Batch{Node: n, Keys: []int64{1}, Upto: []int64{1}, At: now.Add(-time.Hour), Sealed: now})
				require.NoError(p, err)
			})
		}, doctor.Error, "worker", "no worker runs", "start a worker"},
		"a node is gone": {func(p *place) {
			p.node(func(db usage.DB, n int64, _ time.Time) {
				ok, err := usage.Reap(p.Context(), db, n, 0)
				require.NoError(p, err)
				require.True(p, ok)
			})
		}, doctor.Warning, "nodes", "journals were not recovered", "give-up"},
		"restored": {func(p *place) { p.mustFail(exitDisagree, "restored") }, doctor.Error, "reports", "restored", "--go-on"},
		"another sender": {func(p *place) {
			p.sql("INSERT INTO weir.customers (customer, livemode, seen_at, frozen) VALUES ('cus_1', true, now(), 'foreign')")
		}, doctor.Error, "only sender", "did not send", "stop what else sends"},
		"journal missing": {func(p *place) { p.env["WEIR_JOURNAL_DIR"] += "/none" }, doctor.Error, "journal", "does not exist", "make the folder"},
		"journal is open": {func(p *place) { require.NoError(p, os.Chmod(p.env["WEIR_JOURNAL_DIR"], 0o777)) }, doctor.Error, "journal", "other users may write", "chmod go-w"},
		"journal is a file": {func(p *place) {
			p.env["WEIR_JOURNAL_DIR"] = filepath.Join(p.env["WEIR_JOURNAL_DIR"], "file")
			require.NoError(p, os.WriteFile(p.env["WEIR_JOURNAL_DIR"], nil, 0o600))
		}, doctor.Error, "journal", "no file can be made", "folder"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := healthy(t)
			c.breakIt(p)
			bad, err := p.examine()
			if c.level == doctor.Error {
				require.Equal(t, exitDisagree, exitCode(err), "%v", err)
			}
			for _, l := range bad {
				if l.Check == c.check && l.Level == c.level && strings.Contains(l.Message, c.message) && strings.Contains(l.Next, c.next) {
					return
				}
			}
			require.Fail(t, "it is not named", "%+v", bad)
		})
	}
}

func (p *place) sql(text string) {
	p.Helper()
	_, err := pgtest.Pool(p.T, p.env["DATABASE_URL"]).Exec(p.Context(), text)
	require.NoError(p, err)
}

// node registers a node and does something with it.
func (p *place) node(do func(db usage.DB, node int64, now time.Time)) {
	p.Helper()
	db := pgtest.Pool(p.T, p.env["DATABASE_URL"])
	now, err := usage.Now(p.Context(), db)
	require.NoError(p, err)
	n, err := usage.Register(p.Context(), db, "node", "test", now)
	require.NoError(p, err)
	do(db, n.ID, now)
}

// hook is the id of the endpoint.
func (p *place) hook() string {
	p.Helper()
	it := p.sim.API.WebhookEndpoints.List(&stripe.WebhookEndpointListParams{})
	require.True(p, it.Next())
	return it.WebhookEndpoint().ID
}

// drop deletes it.
func (p *place) drop() {
	p.Helper()
	_, err := p.sim.API.WebhookEndpoints.Del(p.hook(), &stripe.WebhookEndpointParams{})
	require.NoError(p, err)
}
