package web_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/web"
)

func TestThePageSaysWhatIsUsedAndWhatHappensNext(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		plan  string
		units int64
		want  []string
	}{
		"little": {"pro", 790, []string{"Within your plan", "790", "of 1,000 events included", "79 %", "When all 1,000 events are used, use goes on and is billed at $0.40 per 1,000 events, up to 5,000 more. Then further calls are refused until 1 Apr 2026, 00:00 UTC."}},
		"near":   {"pro", 800, []string{"80 % used", "200", "included events"}},
		"full":   {"pro", 1_000, []string{"All included units used", "100 %", "All 1,000 events are used: use goes on"}},
		"over":   {"pro", 3_500, []string{"In overage", "350 %", "$1.00", "2,500 events"}},
		"most":   {"pro", 6_000, []string{"Maximum reached", "$2.00"}},
		"block":  {"", 100, []string{"All used", "All 100 events are used: further calls are refused until 1 Apr 2026", "your plan bills none"}},
		"open":   {"open", 5_000_000, []string{"No limit", "5,000,000", "events, without a limit", "Unlimited"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if c.plan != "" {
				w.subscribe("acme", c.plan)
			}
			w.use("acme", "events", c.units)
			for range 2 { // from the inbox, and folded
				page := w.page("acme")
				for _, s := range append(c.want, "As of", "10 Mar 2026, 12:00:", "before tax, discounts and credits") {
					if s == "before tax, discounts and credits" && (c.plan == "" || c.plan == "open") {
						continue
					}
					require.Contains(t, page, s)
				}
				w.fold()
			}
		})
	}
}

func TestWhatLiesInTheInboxIsCountedAsTheFoldWill(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe("acme", "pro")
	w.use("acme", "events", 900)
	w.fold()
	w.use("acme", "events", 350)
	before := feature(t, w.numbers("acme"), 0)
	w.fold()
	after := feature(t, w.numbers("acme"), 0)
	require.Equal(t, after["days"], before["days"])
	for k, v := range map[string]any{"used": 1250., "overage": 250., "overage_billable": 250., "remaining": 0., "limit": 6000., "status": "over"} {
		require.Equal(t, v, before[k], k)
		require.Equal(t, v, after[k], k)
	}
	require.Equal(t, map[string]any{"amount": "0.10", "currency": "usd"}, after["overage_amount"])
	require.Equal(t, "0.04", after["unit_amount"])
	require.Equal(t, "2026-04-01T00:00:00Z", after["resets_at"])
}

func TestAnAccountThatUsedNothingSeesItsPlan(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	page := w.page("a new one")
	require.Contains(t, page, "of 100 events included")
	require.Contains(t, page, "too little use yet")
	require.NotContains(t, page, "<form")
	var accounts int
	require.NoError(t, w.db.QueryRow(t.Context(), "SELECT count(*) FROM weir.accounts").Scan(&accounts))
	require.Zero(t, accounts, "looking makes nothing")
	w.subscribe("idle", "pro")
	w.clock.Set(april.AddDate(0, 3, 0))
	require.Contains(t, w.page("idle"), "of 1,000 events included", "months later, the plan it has")
}

func TestRightAfterARenewalThePeriodBeforeIsStillThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe("acme", "pro")
	w.use("acme", "events", 1_700)
	w.clock.Set(april.Add(time.Second))
	w.use("acme", "events", 3)
	page := w.page("acme")
	require.Contains(t, page, "1 Apr 2026 – 30 Apr 2026")
	require.Contains(t, page, "997")
	require.Contains(t, page, "1 Mar 2026 – 31 Mar 2026")
	require.Contains(t, page, "Closing: last units are still coming in")
	require.Contains(t, page, "$0.28")
	v := w.numbers("acme")
	require.Equal(t, 3., feature(t, v, 0)["used"])
	past := v["past"].([]any)[0].(map[string]any)
	require.Equal(t, 1700., past["used"])
	require.Nil(t, past["book"])
}

func TestProjectionAndPace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe("acme", "pro")
	w.use("acme", "events", 650)
	w.fold()
	pace := feature(t, w.numbers("acme"), 0)["pace"].(map[string]any)
	// 650 in the six and a half days since 4 March: 100 a day, 21.5 days to go.
	require.Equal(t, 100., pace["per_day"])
	require.Equal(t, 2800., pace["used_by_end"])
	require.Equal(t, 1800., pace["overage_by_end"])
	require.Equal(t, map[string]any{"amount": "0.72", "currency": "usd"}, pace["overage_amount_by_end"])
	require.Contains(t, pace["included_used_up_at"], "2026-03-14T00:00:0")
	require.Contains(t, w.page("acme"), "At the pace of the last 7 days (about 100 events a day)")
}

func TestAPageHasOneSnapshot(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe("acme", "pro")
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() { // both features move together, in one statement
		defer close(done)
		n, err := usage.Register(w.Context(), w.db, "busy", "test", noon)
		if err != nil {
			t.Error(err)
			return
		}
		keys, err := usage.Contact(w.Context(), w.db, usage.ContactRequest{Node: n.ID, Account: "acme", At: noon, Feature: "nothing"})
		if err != nil {
			t.Error(err)
			return
		}
		b := usage.Batch{Node: n.ID, At: noon, Sealed: noon}
		for _, k := range keys {
			if noon.Before(k.Ends) && !noon.Before(k.Starts) {
				b.Keys = append(b.Keys, k.Key)
			}
		}
		b.Upto = make([]int64, len(b.Keys))
		for {
			select {
			case <-stop:
				return
			default:
			}
			for i := range b.Upto {
				b.Upto[i]++
			}
			_, err := usage.Flush(w.Context(), w.db, b)
			if err == nil {
				_, err = usage.Fold(w.Context(), w.db, 100)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for range 50 {
		v := w.numbers("acme")
		events, seats := feature(t, v, 0), feature(t, v, 1)
		require.Equal(t, events["used"], seats["used"])
		sum := 0.
		for _, d := range events["days"].([]any) {
			sum += d.(map[string]any)["used"].(float64)
		}
		require.Equal(t, events["used"], sum)
	}
	close(stop)
	<-done
}

func TestTheHostReadsUsageAndMakesLinks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.subscribe("acme/1", "pro")
	w.use("acme/1", "events", 7)
	bearer := []string{"Authorization", "Bearer " + adminToken}
	a := w.get("/v1/accounts/acme%2F1/usage", bearer...)
	require.Equal(t, http.StatusOK, a.status, a.body)
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.body), &v))
	require.Equal(t, 7., feature(t, v, 0)["used"])

	a = w.do(http.MethodPost, "/v1/accounts/acme%2F1/link", nil, bearer...)
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &v))
	require.Equal(t, noon.AddDate(0, 0, 1).Format(time.RFC3339), v["expires_at"])
	path, ok := strings.CutPrefix(v["url"].(string), "https://usage.example.com")
	require.True(t, ok)
	require.Equal(t, http.StatusOK, w.get(path).status)

	for _, path := range []string{"/v1/accounts/acme/usage", "/v1/accounts/acme/link", "/v1/accounts/acme/contact"} {
		method := map[bool]string{true: http.MethodGet, false: http.MethodPost}[strings.HasSuffix(path, "usage")]
		if strings.HasSuffix(path, "contact") {
			method = http.MethodPut
		}
		for _, header := range []string{"", "Bearer", "Bearer wrong", "Basic " + adminToken} {
			require.Equal(t, http.StatusUnauthorized, w.do(method, path, nil, "Authorization", header).status, header)
		}
	}
	unset := newWorld(t, func(c *web.Config) { c.AdminToken = "" })
	a = unset.get("/v1/accounts/acme/usage", "Authorization", "Bearer ")
	require.Equal(t, http.StatusUnauthorized, a.status)
	require.Contains(t, a.body, "WEIR_ADMIN_TOKEN")
}

func TestPlansAreTheCatalogs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.get("/plans.json")
	require.Equal(t, http.StatusOK, a.status)
	require.Equal(t, "*", a.header.Get("Access-Control-Allow-Origin"))
	require.NotContains(t, a.body, "pro_monthly", "Stripe's ids are nobody's business")
	var v struct {
		Currency string
		Plans    []struct {
			Plan   string
			Quotas []struct {
				Feature  string
				Included *int64
				Overage  *struct {
					Price string
					Per   int64
					Max   *int64
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &v))
	require.Len(t, v.Plans, 3)
	require.Equal(t, "pro", v.Plans[1].Plan)
	require.EqualValues(t, 1000, *v.Plans[1].Quotas[0].Included)
	require.Equal(t, "0.4", v.Plans[1].Quotas[0].Overage.Price)
	require.EqualValues(t, 5000, *v.Plans[1].Quotas[0].Overage.Max)
	require.Nil(t, v.Plans[2].Quotas[0].Included)
	page := w.get("/plans").body
	for _, s := range []string{"Pro", "then $0.40 per 1,000 events, up to 5,000 more", "600 calls per minute", "Unlimited", "then refused until the next month"} {
		require.Contains(t, page, s)
	}
}
