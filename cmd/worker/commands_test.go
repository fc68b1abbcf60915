package main

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/usage"
)

// spend counts units for an account as a strict call does.
func spend(t *testing.T, url, account string, units int64) usage.StrictAnswer {
	t.Helper()
	db := pgtest.Pool(t, url)
	now, err := usage.Now(t.Context(), db)
	require.NoError(t, err)
	a, err := usage.ConsumeStrict(t.Context(), db, usage.StrictCall{
		Account: account, Feature: "events", Units: units, Once: account + now.Format(time.RFC3339Nano), At: now,
	})
	require.NoError(t, err)
	return a
}

func TestCommandsOnAnAccount(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	_, err := p.fails(exitFailed, "usage", "show", "acme")
	require.ErrorContains(t, err, "worker migrate")
	p.do("migrate")
	require.Contains(t, p.do("migrate"), "already")
	p.do("plans", "apply")
	require.True(t, func() bool { a := spend(t, p.env["DATABASE_URL"], "acme", 90); return a.Admitted() }())

	p.do("adjust", "--reason", "an outage on the 3rd", "acme", "events", "--", "-40")
	var totals []totalJSON
	require.NoError(t, json.Unmarshal([]byte(p.do("--json", "usage", "show", "acme")), &totals))
	require.EqualValues(t, 50, totals[0].Used)
	require.Regexp(t, ` open +free +events +50 `, p.do("usage", "show", "acme"))
	_, err = p.fails(exitFailed, "usage", "show", "nobody")
	require.ErrorContains(t, err, "from its first call on")
	_, err = p.fails(exitUsage, "adjust", "--reason", "too much", "acme", "events", "--", "-60")
	require.ErrorContains(t, err, "usage show acme")
	p.mustFail(exitUsage, "adjust", "--reason", " ", "acme", "events", "5")
	p.mustFail(exitUsage, "adjust", "acme", "events", "5")

	p.do("override", "--included", "60", "--reason", "a deal", "acme", "events")
	a := spend(t, p.env["DATABASE_URL"], "acme", 11)
	require.Equal(t, usage.StrictRefused, a.Status)
	p.do("override", "--clear", "--reason", "the deal is over", "acme", "events")
	a = spend(t, p.env["DATABASE_URL"], "acme", 11)
	require.Equal(t, usage.StrictOK, a.Status)
	p.mustFail(exitUsage, "override", "--included", "-1", "--reason", "x", "acme", "events")
	p.mustFail(exitUsage, "override", "--reason", "x", "acme", "events")
	_, err = p.fails(exitUsage, "override", "--included", "1", "--reason", "x", "acme", "evnts")
	require.ErrorContains(t, err, `"evnts"`)

	require.Contains(t, p.do("findings"), "nothing")
	require.JSONEq(t, "[]", p.do("--json", "findings"))
	require.JSONEq(t, "[]", p.do("--json", "nodes"))
	require.JSONEq(t, "[]", p.do("--json", "late"))
	_, err = p.fails(exitUsage, "nodes", "give-up", "--reason", "its disk is lost", "42")
	require.ErrorIs(t, err, usage.ErrNotFound)
	p.mustFail(exitUsage, "late", "release", "7", "--policy", "forgive", "--reason", "x")
	p.do("close-report", "--month", "2026-01")
	p.mustFail(exitUsage, "close-report", "--month", "January")
	_, err = p.fails(exitUsage, "settle", "acme")
	require.ErrorContains(t, err, "STRIPE_API_KEY")
	for _, name := range []string{"sync", "reconcile"} {
		_, err = p.fails(exitUsage, name)
		require.ErrorContains(t, err, "STRIPE_API_KEY")
	}
	out, err := p.fails(exitDisagree, "restored")
	require.ErrorContains(t, err, "--go-on")
	require.Contains(t, out, "restored")
	require.Contains(t, p.do("restored", "--go-on", "--reason", "it was no restore"), "nothing holds up")
}

func TestAPeriodThatHasNotBegunIsAhead(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	require.Equal(t, "ahead", stateAt(usage.Total{State: "open", Starts: at}, at.Add(-time.Second)))
	require.Equal(t, "open", stateAt(usage.Total{State: "open", Starts: at}, at))
	require.Equal(t, "closed", stateAt(usage.Total{State: "closed", Starts: at}, at.Add(-time.Second)))
}

func TestShadowModeIsReported(t *testing.T) {
	t.Parallel()
	p := newMigrated(t)
	p.do("plans", "apply")
	p.do("shadow", "--reason", "a test", "acme")
	require.Contains(t, p.do("usage", "shadow"), "nothing")
	a := spend(t, p.env["DATABASE_URL"], "acme", 90)
	require.True(t, a.Admitted())
	db := pgtest.Pool(t, p.env["DATABASE_URL"])
	now, err := usage.Now(t.Context(), db)
	require.NoError(t, err)
	// A node in shadow mode counts on beyond its leases.
	node, err := usage.Register(t.Context(), db, "node", "test", now)
	require.NoError(t, err)
	_, err = usage.Flush(t.Context(), db, usage.Batch{Node: node.ID, Keys: []int64{a.Key}, Upto: []int64{35}, At: now, Sealed: now})
	require.NoError(t, err)
	_, err = usage.Fold(t.Context(), db, 100)
	require.NoError(t, err)
	var all []shadowJSON
	require.NoError(t, json.Unmarshal([]byte(p.do("--json", "usage", "shadow")), &all))
	require.Len(t, all, 1)
	require.Equal(t, "acme", all[0].Account)
	require.EqualValues(t, 125, all[0].Used)
	require.EqualValues(t, 25, all[0].Refused)
	require.Nil(t, all[0].Lost, "the plan has no price for them")

	// An account that is billed: what it would pay.
	p.do("shadow", "--reason", "a test", "oak")
	oak, err := usage.FindAccount(t.Context(), db, "oak", false, now)
	require.NoError(t, err)
	_, err = usage.ApplyPlan(t.Context(), db, oak, usage.PlanState{
		Plan: "pro", Quantity: 1, Anchor: now, Months: 1, Starts: now, Ends: now.AddDate(0, 1, 0), Billable: []string{"events"},
	}, now)
	require.NoError(t, err)
	a = spend(t, p.env["DATABASE_URL"], "oak", 2_234)
	require.True(t, a.Admitted())
	_, err = usage.Fold(t.Context(), db, 100)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(p.do("--json", "usage", "shadow")), &all))
	require.Len(t, all, 2)
	require.EqualValues(t, 0, all[1].Refused)
	require.EqualValues(t, 1_234, all[1].Billed)
	require.Equal(t, "0.49", *all[1].Amount)
	require.Contains(t, p.do("usage", "shadow"), "0.49 USD")
	p.do("shadow", "--off", "--reason", "a test", "oak")
	p.do("shadow", "--off", "--reason", "a test", "acme")
	require.JSONEq(t, "[]", p.do("--json", "usage", "shadow"))
	p.mustFail(exitUsage, "shadow", "--off", "--reason", "a test", "nobody")
}

func TestTheAdminRoutesNeedTheToken(t *testing.T) {
	t.Parallel()
	p := newMigrated(t)
	p.stripe(stripesim.Config{})
	closed := p.serve()
	require.Equal(t, http.StatusUnauthorized, closed.status("POST", "/v1/settle/acme", "", ""))
	require.NoError(t, closed.stop())

	const secret = "planted-admin-token"
	p.env["WEIR_ADMIN_TOKEN"] = secret
	s := p.serve("--log-format", "json", "--log-level", "debug")
	for _, wrong := range []string{"", "x", secret + "x", secret[1:]} {
		require.Equal(t, http.StatusUnauthorized, s.status("POST", "/v1/settle/acme", wrong, ""))
		require.Equal(t, http.StatusUnauthorized, s.status("PUT", "/v1/accounts/acme", wrong, `{"customer":"cus_1"}`))
	}
	require.Equal(t, http.StatusNotFound, s.status("POST", "/v1/settle/acme", secret, ""))
	require.Equal(t, http.StatusOK, s.status("PUT", "/v1/accounts/acme", secret, `{"customer":"cus_1"}`))
	status, body := s.request("POST", "/v1/settle/acme", secret, "")
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"settled":true,"features":[]}`, body)
	for _, bad := range []string{"", "{}", `{"customer":"cus_1"} {}`, `{"customer":"cus_1","x":1}`, `[]`} {
		require.Equal(t, http.StatusBadRequest, s.status("PUT", "/v1/accounts/acme", secret, bad), bad)
	}
	require.Equal(t, http.StatusUnprocessableEntity, s.status("PUT", "/v1/accounts/acme", secret, `{"customer":"sub_1"}`))
	_, page := s.request("GET", "/metrics", "", "")
	require.Contains(t, page, "weir_worker_up 1")
	require.Contains(t, page, `weir_http_answers_total{route="settle",status="404"} 1`)
	require.NotContains(t, page, "acme")
	require.NoError(t, s.stop())
	for _, planted := range []string{secret, p.env["STRIPE_API_KEY"], p.env["STRIPE_WEBHOOK_SECRET"]} {
		require.NotContains(t, s.log.String(), planted)
		require.NotContains(t, page, planted)
	}
}
