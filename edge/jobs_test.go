package edge_test

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/pgtest"
)

// River's own page is drawn by its scripts, under the policy that the admin gives it, and acts from there.
func TestTheJobsPageInTheAdmin(t *testing.T) {
	url := worker(t)
	b := open(t, 1280, 900)
	b.load(url + "/admin/jobs/")
	require.Equal(t, "Sign in", b.text("h1"), "behind the same guard")
	b.forget()
	b.do(chromedp.SendKeys(chromedp.CSS("#name"), "Ada"), chromedp.SendKeys(chromedp.CSS("#token"), token+"\r"))
	b.do(chromedp.WaitVisible(chromedp.CSS("#root nav")))
	b.until(`document.body.innerText.includes("flush") || document.body.innerText.includes("retire") || document.body.innerText.includes("No jobs")`)
	b.shoot("admin-jobs")
	b.load(url + "/admin/jobs/queues")
	b.until(`document.body.innerText.includes("fold")`)
	b.shoot("admin-jobs-queues")
	b.quiet()
}

// worker builds and starts a worker on a database of its own, and returns its address.
func worker(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "worker"), "./cmd/worker")
	build.Dir = ".."
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	file := filepath.Join(dir, "plans.yaml")
	require.NoError(t, os.WriteFile(file, []byte(planFile), 0o600))
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "worker"), "serve", "--migrate", "--no-stripe", "--addr", "127.0.0.1:0")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), "DATABASE_URL="+pgtest.URL(t), "WEIR_PLANS="+file, "WEIR_ADMIN_TOKEN="+token)
	var log bytes.Buffer
	cmd.Stderr = &log
	said, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the worker: %s", log.String())
		}
	})
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if _, at, ok := strings.Cut(lines.Text(), "serving on "); ok {
			return ready(t, at)
		}
	}
	require.FailNow(t, "the worker did not start")
	return ""
}

// ready waits until a worker is ready.
func ready(t *testing.T, url string) string {
	t.Helper()
	require.Eventually(t, func() bool {
		res, err := http.Get(url + "/readyz")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	}, time.Minute, 50*time.Millisecond)
	return url
}
