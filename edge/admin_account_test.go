package edge_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/web/admin"
)

// confirm fills in the reason of the form that is open, looks at what would be done, shoots it, and does it.
func (b *tab) confirm(name, reason string) {
	b.Helper()
	b.do(chromedp.SendKeys(chromedp.CSS("#f-reason"), reason), chromedp.Click(chromedp.CSS(`button[value="preview"]`)), chromedp.WaitVisible(chromedp.CSS(".preview")))
	b.shoot(name)
	b.do(chromedp.Click(chromedp.CSS(`button[value="do"]`)), chromedp.WaitVisible(chromedp.CSS(".flash")))
	require.Contains(b, b.text(".flash"), "done", name)
}

func (o *office) newest() usage.Entry {
	o.Helper()
	all, err := usage.AuditLog(o.Context(), o.db, usage.AuditFilter{Most: 1})
	require.NoError(o, err)
	require.NotEmpty(o, all)
	return all[0]
}

func TestTheAdminsAccount(t *testing.T) {
	o := busy(t)
	b := o.signIn(1280, 1000)
	account := o.url + "/admin/accounts/northwind"
	b.load(account)
	b.shoot("admin-account")
	require.Contains(t, b.text("main"), "Closed periods")
	require.Equal(t, 1, value[int](b, `document.querySelectorAll("h1").length`))
	require.Zero(t, value[int](b, `[...document.querySelectorAll("button, a")].filter(e => !e.textContent.trim()).length`))
	// Each of the five numbers, and their sum, opens its rows.
	for i, label := range []string{"Overage", "Invoiced", "Pending", "Late", "Forgiven", "Not billable"} {
		b.load(account)
		value[bool](b, `(document.querySelectorAll(".books tbody tr")[0].querySelectorAll("a")[`+string(rune('0'+i))+`].click(), true)`)
		b.do(chromedp.WaitVisible(chromedp.CSS("#rows")))
		require.True(t, strings.HasPrefix(b.text("h1"), label), b.text("h1"))
		require.Contains(t, b.text(".head"), "the rows add up")
	}
	b.load(account)
	b.do(chromedp.Click(chromedp.CSS(".books tbody tr a")), chromedp.WaitVisible(chromedp.CSS("#rows")))
	b.shoot("admin-book")

	for _, c := range []struct {
		action, name string
		fill         []chromedp.Action[chromedp.Void]
	}{
		{"override", "override", []chromedp.Action[chromedp.Void]{chromedp.SendKeys(chromedp.CSS("#f-included"), "2,000,000")}},
		{"cap", "spending cap", []chromedp.Action[chromedp.Void]{chromedp.SendKeys(chromedp.CSS("#f-units"), "750000")}},
		{"adjust", "adjust", []chromedp.Action[chromedp.Void]{chromedp.SendKeys(chromedp.CSS("#f-units"), "100")}},
		{"settle", "settle", nil},
		{"resync", "resync", nil},
		{"replay", "replay", nil},
		{"shadow", "shadow", nil},
		{"contact", "contact", []chromedp.Action[chromedp.Void]{chromedp.SendKeys(chromedp.CSS("#f-email"), "ops@example.com")}},
		{"map", "unmap", []chromedp.Action[chromedp.Void]{chromedp.Clear(chromedp.CSS("#f-customer"))}},
	} {
		b.load(account + "/do/" + c.action)
		b.do(c.fill...)
		b.confirm("admin-do-"+c.action, "a ticket of theirs, number 4711")
		e := o.newest()
		require.Equal(t, []string{"Ada Byron", usage.WayAdmin, c.name, usage.ResultDone}, []string{e.Actor, e.Way, e.Action, e.Result})
	}
	b.load(account + "?kind=action")
	b.shoot("admin-account-actions")
	require.Contains(t, b.text(".story"), "a ticket of theirs, number 4711")
	b.load(o.url + "/admin/audit")
	b.shoot("admin-audit")
	require.Contains(t, b.text("main"), "Ada Byron")
	b.quiet()
}

func TestTheAdminsLateUsageIsDecided(t *testing.T) {
	o := busy(t)
	// An addition to a period whose invoice is final.
	b := o.signIn(1280, 1000)
	account := o.url + "/admin/accounts/northwind"
	b.load(account + "/do/adjust")
	value[bool](b, `(document.querySelector("#f-at").selectedIndex = document.querySelectorAll("#f-at option").length - 1, document.querySelector("#f-way").value = "add", true)`)
	b.do(chromedp.SendKeys(chromedp.CSS("#f-units"), "3000"))
	b.confirm("admin-do-adjust-late", "a node's log was found")
	b.load(account + "/do/late")
	value[bool](b, `(document.querySelector("#f-policy").value = "forgive", true)`)
	b.confirm("admin-do-late", "our own fault")
	require.Equal(t, "late release", o.newest().Action)
	// Wrong input: the form again, with what was typed.
	b.load(account + "/do/override")
	b.do(chromedp.SendKeys(chromedp.CSS("#f-included"), "lots"), chromedp.SendKeys(chromedp.CSS("#f-reason"), "why"), chromedp.Click(chromedp.CSS(`button[value="preview"]`)))
	b.do(chromedp.WaitVisible(chromedp.CSS("#e-included")))
	require.Equal(t, "lots", value[string](b, `document.querySelector("#f-included").value`))
	b.shoot("admin-do-error")
	require.Equal(t, "late release", o.newest().Action, "nothing was stored")
}

func TestTheAdminsFindingAndNodeAreSettled(t *testing.T) {
	o := busy(t)
	b := o.signIn(1280, 1000)
	b.load(o.url + "/admin/findings?kind=report_rejected")
	b.do(chromedp.Click(chromedp.CSS(`.finding a[href$="/clear"]`)), chromedp.WaitVisible(chromedp.CSS("#f-reason")))
	b.confirm("admin-do-clear", "their support has mended it")
	require.Equal(t, "clear finding", o.newest().Action)
	require.Zero(t, value[int](b, `document.querySelectorAll(".finding").length`))
	b.load(o.url + "/admin/nodes")
	value[bool](b, `([...document.querySelectorAll("tbody tr")].find(e => e.textContent.includes("reaped")).querySelector("a").click(), true)`)
	b.do(chromedp.WaitVisible(chromedp.CSS(`a[href$="/give-up"]`)))
	b.shoot("admin-node-reaped")
	b.do(chromedp.Click(chromedp.CSS(`a[href$="/give-up"]`)), chromedp.WaitVisible(chromedp.CSS("#f-reason")))
	b.confirm("admin-do-give-up", "its disk is lost")
	e := o.newest()
	require.Equal(t, []string{"Ada Byron", usage.WayAdmin, "give up node", usage.ResultDone}, []string{e.Actor, e.Way, e.Action, e.Result})
	require.Contains(t, b.text("main"), "given_up")
	b.quiet()
}

func TestTheAdminsAccountOnAPhone(t *testing.T) {
	o := busy(t)
	b := o.signIn(390, 844, noScript())
	for path, name := range map[string]string{
		"/admin/accounts/northwind": "admin-phone-account", "/admin/accounts/northwind/do/adjust": "admin-phone-adjust", "/admin/accounts/northwind?kind=report": "",
		"/admin/audit": "", "/admin/requests": "", "/admin/accounts/%3Cb%3Ebold%20&%20co%3C%2Fb%3E": "",
	} {
		b.load(o.url + path)
		require.LessOrEqual(t, value[int](b, "document.documentElement.scrollWidth"), 390, "nothing sticks out of %s", path)
		require.Zero(t, value[int](b, `[...document.querySelectorAll("main button, main nav a, .kinds a")].filter(e => e.getBoundingClientRect().height < 24).length`), path)
		if name != "" {
			b.shoot(name)
		}
	}
	b.quiet()
}

// behind is a proxy that says who is signed in.
func behind(t *testing.T, to, user string) string {
	t.Helper()
	at, err := url.Parse(to)
	require.NoError(t, err)
	p := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(at)
		r.Out.Host = r.In.Host
		r.Out.Header.Set("X-User", user)
	}, Transport: &http.Transport{ResponseHeaderTimeout: 30 * time.Second}})
	t.Cleanup(p.Close)
	return p.URL
}

func TestTheAdminsSecondPerson(t *testing.T) {
	o := busy(t, func(c *admin.Config) {
		c.UserHeader, c.TrustedProxies, c.SecondPerson = "X-User", []string{"127.0.0.1"}, true
	})
	ann, bob := behind(t, o.url, "ann"), behind(t, o.url, "bob")
	b := open(t, 1280, 900)
	b.load(ann + "/admin/accounts/fabrikam/do/adjust")
	b.do(chromedp.SendKeys(chromedp.CSS("#f-units"), "500"), chromedp.SendKeys(chromedp.CSS("#f-reason"), "an outage on our side"))
	b.do(chromedp.Click(chromedp.CSS(`button[value="preview"]`)), chromedp.WaitVisible(chromedp.CSS(".preview")))
	require.Contains(t, b.text("form.act"), "Another person has to agree")
	b.do(chromedp.Click(chromedp.CSS(`button[value="do"]`)), chromedp.WaitVisible(chromedp.CSS(".flash")))
	require.Contains(t, b.text(".flash"), "asked for")
	b.load(ann + "/admin/requests")
	require.Contains(t, b.text("main"), "It is your own")
	b.load(bob + "/admin/requests")
	b.shoot("admin-requests")
	b.do(chromedp.SendKeys(chromedp.CSS("main textarea"), "I saw the outage too"), chromedp.Click(chromedp.CSS(`button[value="approve"]`)), chromedp.WaitVisible(chromedp.CSS(".flash")))
	require.Contains(t, b.text(".flash"), "approved and done")
	require.Equal(t, "bob", o.newest().Actor)
	b.quiet()
}
