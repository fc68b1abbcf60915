package edge_test

import (
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var began = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// at brings an account to that much use of a million.
func (w *world) at(account string, units int64) {
	w.Helper()
	w.subscribe(account, "pro", began)
	w.month(account, units, began, now)
	w.use(account, "exports", 143, now)
}

func TestThePageAtEachLevel(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name    string
		account string
		units   int64
		pill    string
		shows   []string
	}{
		{"79-percent", "northwind", 790_000, "Within your plan", []string{"790,000", "79 %", "210,000", "When all 1,000,000 requests are used"}},
		{"80-percent", "contoso", 800_000, "80 % used", []string{"800,000", "200,000"}},
		{"100-percent", "fabrikam", 1_000_000, "All included units used", []string{"100 %", "All 1,000,000 requests are used: use goes on and is billed at $0.40 per 1,000 requests"}},
		{"overage", "acme", 1_204_000, "In overage", []string{"120 %", "$81.60", "204,000 requests"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.at(c.account, c.units)
			b := open(t, 1100, 1000)
			b.loadLive(w.link(c.account))
			b.shoot(c.name)
			require.Equal(t, c.pill, b.text("#live-f0 .pill"))
			for _, s := range c.shows {
				require.Contains(t, b.text("#live-f0"), s)
			}
			b.quiet()
		})
	}
}

func TestNumbersMoveDuringTraffic(t *testing.T) {
	w := newWorld(t)
	w.at("acme", 790_000)
	b := open(t, 1100, 1000)
	b.loadLive(w.link("acme"))
	require.Equal(t, "790,000", b.text("#live-f0 .big strong"))
	b.do(chromedp.Focus(chromedp.CSS("#cap-f0-amount")), chromedp.SendKeys(chromedp.CSS("#cap-f0-amount"), "25"))
	b.do(chromedp.Click(chromedp.CSS("#f0-days summary")))
	for i := range 5 {
		w.use("acme", "requests", 1000+int64(i), now)
	}
	b.do(chromedp.Focus(chromedp.CSS("#cap-f0-amount")))
	b.until(`document.querySelector("#live-f0 .big strong").textContent === "795,010"`)
	require.True(t, value[bool](b, `document.getElementById("f0-days").open`), "what was opened stays open")
	require.Equal(t, "25", value[string](b, `document.getElementById("cap-f0-amount").value`), "what was typed stays")
	w.use("acme", "requests", 10_000, now)
	b.until(`document.querySelector("#live-f0 .pill").textContent === "80 % used"`)
	b.until(`document.getElementById("announce").textContent.includes("80 % used")`)
	b.shoot("live")
	b.quiet()
}

func TestTheSpendingCapIsSetByKeyboard(t *testing.T) {
	w := newWorld(t)
	w.at("acme", 1_010_000)
	b := open(t, 1100, 1000)
	b.loadLive(w.link("acme"))
	b.do(chromedp.Focus(chromedp.CSS("#cap-f0-amount")), chromedp.SendKeys(chromedp.CSS("#cap-f0-amount"), "1,50\r"))
	b.do(chromedp.WaitVisible(chromedp.CSS(".cap .error")))
	require.Contains(t, b.text(".cap .error"), "Enter an amount such as 25.00")
	b.shoot("cap-error")
	b.do(chromedp.Clear(chromedp.CSS("#cap-f0-amount")), chromedp.SendKeys(chromedp.CSS("#cap-f0-amount"), "25\r"))
	b.do(chromedp.WaitVisible(chromedp.CSS(".cap .saved")))
	require.Contains(t, b.text("#cap-f0-help"), "$25.00 (62,500 requests)")
	require.Contains(t, b.text("#live-f0 .rule"), "up to your spending cap of $25.00 (62,500 requests)")
	b.shoot("cap")
}

func TestJustAfterARenewal(t *testing.T) {
	w := newWorld(t)
	w.at("acme", 1_204_000)
	april := began.AddDate(0, 1, 0)
	w.clock.Set(april.Add(90 * time.Second))
	w.use("acme", "requests", 412, april.Add(time.Minute))
	b := open(t, 1100, 1000)
	b.loadLive(w.link("acme"))
	b.shoot("renewal")
	require.Contains(t, b.text("#live-head"), "1 Apr 2026 – 30 Apr 2026")
	require.Equal(t, "412", b.text("#live-f0 .big strong"))
	require.Contains(t, b.text("#live-past"), "1 Mar 2026 – 31 Mar 2026")
	require.Contains(t, b.text("#live-past"), "1,204,000")
	require.Contains(t, b.text("#live-past"), "Closing: last units are still coming in")
	b.quiet()
}

func TestWithoutScriptThePageIsComplete(t *testing.T) {
	w := newWorld(t)
	w.at("acme", 1_204_000)
	b := open(t, 1100, 1000, noScript())
	b.load(w.link("acme"))
	b.shoot("no-script")
	require.Contains(t, b.text("#live-f0"), "$81.60")
	require.Contains(t, b.text("footer"), "Reload this page for newer numbers.")
	b.do(chromedp.SendKeys(chromedp.CSS("#cap-f0-amount"), "100"), chromedp.Click(chromedp.CSS(".cap button")), chromedp.WaitVisible(chromedp.CSS(".cap .saved")))
	require.Contains(t, b.text("#cap-f0-help"), "$100.00 (250,000 requests)")
	b.quiet()
}

func TestOnAPhoneNothingIsCutOff(t *testing.T) {
	w := newWorld(t)
	w.at("acme", 1_204_000)
	april := began.AddDate(0, 1, 0)
	w.clock.Set(april.Add(9 * 24 * time.Hour))
	w.month("acme", 930_000, april, april.Add(9*24*time.Hour))
	for name, more := range map[string]chromedp.Action[chromedp.Void]{"phone": chromedp.Steps(), "phone-dark": dark()} {
		b := open(t, 375, 740, more)
		b.loadLive(w.link("acme"))
		b.shoot(name)
		require.LessOrEqual(t, value[int](b, "document.documentElement.scrollWidth"), 375, "nothing sticks out")
		small := value[int](b, `[...document.querySelectorAll("button, .field, summary, .button")].filter(e => e.getBoundingClientRect().height < 24).length`)
		require.Zero(t, small, "what is touched is large enough")
		b.quiet()
	}
}

// On paper nothing scrolls: a year of periods and the last column are there.
func TestPrintedNothingIsCutOff(t *testing.T) {
	w := newWorld(t)
	for i := range 12 {
		w.clock.Set(began.AddDate(0, i, 20))
		w.month("acme", 8_000, began.AddDate(0, i, 0), began.AddDate(0, i, 5))
	}
	b := open(t, 718, 1000, set(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"}))
	b.load(w.link("acme"))
	b.shoot("print")
	require.Equal(t, 22, value[int](b, `document.querySelectorAll(".past tbody tr").length`), "11 periods of two features")
	require.Zero(t, value[int](b, `[...document.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight).length`))
	require.LessOrEqual(t, value[int](b, "document.documentElement.scrollWidth"), 718)
	b.quiet()
}

// A page whose link is over, or whose worker is away, goes on showing numbers: it says that they stand.
func TestThePageSaysThatItsNumbersStand(t *testing.T) {
	w := newWorld(t)
	w.at("acme", 790_000)
	b := open(t, 1100, 1000)
	b.loadLive(w.url + "/usage/" + w.token("acme", 3*time.Second))
	require.NotContains(t, b.text("#live-head"), "Not updated")
	b.do(chromedp.WaitVisible(chromedp.CSS("body.off .stale")))
	require.Contains(t, b.text("#live-head"), "As of 21 Mar 2026, 15:04:")
	require.Contains(t, b.text("#live-head"), "Not updated since then.")
	require.Contains(t, value[string](b, `document.getElementById("announce").textContent`), "Not updated since then.", "it is told, too")
	require.Equal(t, "790,000", b.text("#live-f0 .big strong"))
	b.shoot("standing")
}

func TestDarkThePageHasContrast(t *testing.T) {
	w := newWorld(t)
	w.at("acme", 1_204_000)
	b := open(t, 1100, 1000, dark())
	b.loadLive(w.link("acme"))
	b.shoot("dark")
	require.Equal(t, "rgb(12, 21, 25)", value[string](b, "getComputedStyle(document.body).backgroundColor"))
	b.quiet()
}

func TestEveryControlHasAName(t *testing.T) {
	w := newWorld(t)
	w.at("acme", 1_204_000)
	b := open(t, 1100, 1000)
	b.loadLive(w.link("acme"))
	require.Zero(t, value[int](b, `[...document.querySelectorAll("input:not([type=hidden])")].filter(e => !e.labels.length).length`))
	require.Zero(t, value[int](b, `[...document.querySelectorAll("button, a, summary")].filter(e => !e.textContent.trim()).length`))
	require.Zero(t, value[int](b, `[...document.querySelectorAll("svg[role=img]")].filter(e => !e.getAttribute("aria-label")).length`))
	require.Equal(t, 1, value[int](b, `document.querySelectorAll("h1").length`))
	require.Equal(t, "en", value[string](b, "document.documentElement.lang"))
	// From the top: the first key leads past the head.
	b.do(chromedp.KeyEvent("\t"))
	require.Equal(t, "Skip to your usage", value[string](b, "document.activeElement.textContent"))
}

func TestThePricingTable(t *testing.T) {
	w := newWorld(t)
	b := open(t, 1100, 800)
	b.load(w.url + "/plans")
	b.shoot("plans")
	require.Contains(t, b.text("main"), "then $0.40 per 1,000 requests, up to 5,000,000 more")
	b.quiet()
}
