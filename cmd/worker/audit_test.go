package main

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/stripe/stripe-go/v79"

	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/usage"
)

// audited are the rows of the audit log, oldest first, as "way actor action subject: result".
func audited(t *testing.T, url string) []string {
	t.Helper()
	all, err := usage.AuditLog(t.Context(), pgtest.Pool(t, url), usage.AuditFilter{Most: usage.MaxAuditRows})
	require.NoError(t, err)
	var out []string
	for _, e := range slices.Backward(all) {
		require.NotEmpty(t, e.Reason)
		out = append(out, e.Way+" "+e.Actor+" "+e.Action+" "+e.Subject+": "+e.Result)
	}
	return out
}

func TestEveryChangeIsInTheAuditLog(t *testing.T) {
	t.Parallel()
	p := newMigrated(t)
	now := time.Now().UTC()
	p.stripe(stripesim.Config{Start: now})
	url := p.env["DATABASE_URL"]
	p.env["WEIR_ADMIN_TOKEN"] = "admin-token-of-a-test"
	p.do("plans", "apply", "--actor", "ann", "--reason", "the first one")
	require.Len(t, audited(t, url), 1)
	require.Contains(t, audited(t, url)[0], "cli ann publish plans ")
	spend(t, url, "acme", 90)
	c, err := p.sim.API.Customers.New(&stripe.CustomerParams{})
	require.NoError(t, err)
	who := []string{"--actor", "ann", "--reason", "a test"}
	for _, one := range [][]string{
		{"adjust", "acme", "events", "--", "-40"},
		{"override", "--included", "60", "acme", "events"},
		{"shadow", "acme"},
		{"shadow", "--off", "acme"},
		{"map", "acme", c.ID},
		{"settle", "acme"},
		{"sync", "acme"},
		{"sync"},
		{"replay"},
		{"restored", "--go-on"},
	} {
		p.do(append([]string{one[0]}, append(who, one[1:]...)...)...)
	}
	p.mustFail(exitUsage, append([]string{"nodes", "give-up"}, append(who, "42")...)...)
	p.mustFail(exitUsage, append([]string{"late", "release"}, append(who, "--policy", "forgive", "7")...)...)
	p.mustFail(exitUsage, append([]string{"adjust"}, append(who, "acme", "events", "--", "-4000")...)...)
	p.do("replay")                  // who runs it, and that no reason was given
	for _, one := range [][]string{ // what a person decides says why
		{"adjust", "acme", "events", "5"}, {"override", "--included", "60", "acme", "events"}, {"late", "release", "--policy", "forgive", "7"},
		{"shadow", "acme"}, {"map", "acme", c.ID}, {"nodes", "give-up", "42"}, {"forget", "--yes", "acme"}, {"restored", "--go-on"},
	} {
		_, err := p.fails(exitUsage, one...)
		require.ErrorContains(t, err, "--reason", one)
		if one[0] != "restored" {
			_, err = p.fails(exitUsage, append(one, "--reason", " ")...)
			require.ErrorContains(t, err, "--reason is empty", one)
		}
	}
	require.Equal(t, []string{
		"cli ann adjust acme: done", "cli ann override acme: done", "cli ann shadow acme: done", "cli ann shadow acme: done", "cli ann map acme: done",
		"cli ann settle acme: done", "cli ann resync acme: done", "cli ann resync all that changed: done", "cli ann replay : done", "cli ann resume restored: done",
		"cli ann give up node node 42: refused", "cli ann late release late usage 7: refused", "cli ann adjust acme: refused",
		"cli " + actor() + " replay : done",
	}, audited(t, url)[1:])

	s := p.serve()
	before := len(audited(t, url))
	require.Equal(t, http.StatusUnauthorized, s.status("PUT", "/v1/accounts/other", "", `{"customer":"`+c.ID+`"}`))
	require.Equal(t, http.StatusOK, s.status("PUT", "/v1/accounts/other", "admin-token-of-a-test", `{"customer":"`+c.ID+`"}`))
	require.Equal(t, http.StatusOK, s.status("POST", "/v1/settle/other", "admin-token-of-a-test", ""))
	require.Equal(t, http.StatusNoContent, s.status("PUT", "/v1/accounts/other/contact", "admin-token-of-a-test", `{"email":"ops@example.com"}`))
	require.Equal(t, http.StatusUnprocessableEntity, s.status("PUT", "/v1/accounts/other", "admin-token-of-a-test", `{"customer":"nobody"}`))
	require.Equal(t, []string{"api host map other: done", "api host settle other: done", "api host contact other: done"}, audited(t, url)[before:])
	require.NoError(t, s.stop())

	// What is in it stays.
	db := pgtest.Pool(t, url)
	for _, sql := range []string{"DELETE FROM weir.audit", "UPDATE weir.audit SET reason = 'another'", "UPDATE weir.audit SET result = 'done'", "TRUNCATE weir.audit CASCADE"} {
		_, err := db.Exec(t.Context(), sql)
		require.ErrorContains(t, err, "append-only", sql)
	}
}
