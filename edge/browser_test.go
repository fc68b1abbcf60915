package edge_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// pageTime bounds what one test does in the browser, on a machine that does other things too.
const pageTime = 90 * time.Second

// tab is one page in a browser of its own profile.
type tab struct {
	*testing.T
	ctx context.Context

	mu   sync.Mutex
	said []string // what the page wrote to its console: violations of its policy, and errors
}

// browser finds Chromium, which scripts/setup-edge installs.
func browser(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("WEIR_CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	require.FailNow(t, "there is no Chromium", "run `make test-edge`, which installs it, or name one by WEIR_CHROMIUM")
	return ""
}

// set runs a command of the protocol that has no action of its own.
func set[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, c, params)
		return err
	})
}

func dark() chromedp.Action[chromedp.Void] {
	return set(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
	})
}

func noScript() chromedp.Action[chromedp.Void] {
	return set(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

// open starts a browser with a window of a size.
func open(t *testing.T, width, height int64, more ...chromedp.Action[chromedp.Void]) *tab {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(browser(t)), chromedp.UserDataDir(t.TempDir()),
		chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Flag("hide-scrollbars", true))
	alloc, stop := chromedp.NewExecAllocator(deadline(t, pageTime), options...)
	b := &tab{T: t}
	ctx, cancel := chromedp.NewContext(alloc)
	b.ctx = ctx
	t.Cleanup(func() { // waits for the browser's end, so that its profile can be removed
		_ = chromedp.Cancel(ctx)
		cancel()
		stop()
	})
	require.NoError(t, chromedp.Listen(ctx, b.hear))
	b.do(set(log.Enable, cdp.Empty{}), chromedp.EmulateViewport(width, height))
	b.do(more...)
	return b
}

// hear keeps what the page complains of.
func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *cdpruntime.EventExceptionThrown:
		b.said = append(b.said, e.ExceptionDetails.Text)
	case *log.EventEntryAdded:
		b.said = append(b.said, e.Entry.Text+" "+e.Entry.URL)
	}
}

func (b *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	require.NoError(b, chromedp.Do(b.ctx, actions...))
}

// load opens a page; its script runs where scripts run.
func (b *tab) load(url string) {
	b.Helper()
	b.do(chromedp.Navigate(url))
}

// loadLive opens a page and waits until its numbers move.
func (b *tab) loadLive(url string) {
	b.Helper()
	b.do(chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS("body.on")))
}

// text is the visible text of an element.
func (b *tab) text(selector string) string {
	b.Helper()
	s, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS(selector)))
	require.NoError(b, err)
	return strings.TrimSpace(s)
}

// value is the value of an expression in the page.
func value[T any](b *tab, expression string) T {
	b.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	require.NoError(b, err)
	return v
}

// until waits for an expression to be true.
func (b *tab) until(expression string) {
	b.Helper()
	_, err := chromedp.Run(b.ctx, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(50*time.Millisecond)))
	require.NoError(b, err, expression)
}

// quiet fails when the page complained of anything: its policy, its script, a resource.
func (b *tab) quiet() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b, b.said)
}

// forget drops what the page has complained of so far: a browser notes each answer that is an error.
func (b *tab) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = nil
}

// shoot keeps a picture of the whole page as test output.
func (b *tab) shoot(name string) {
	b.Helper()
	dir := os.Getenv("WEIR_SCREENSHOTS")
	if dir == "" {
		dir = "screenshots"
	}
	require.NoError(b, os.MkdirAll(dir, 0o755))
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	require.NoError(b, err)
	require.NoError(b, os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
}
