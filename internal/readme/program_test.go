package readme_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

// The program that readers copy admits, refuses, and at its end has stored every unit and given its leases back.
func TestTheProgramCountsAndStops(t *testing.T) {
	t.Parallel()
	database, where := schematest.URL(t), free(t)
	db := pgtest.Pool(t, database)
	file, err := plans.Parse([]byte(strings.Replace(blocks(t, "yaml")[0], "events: 10_000", "events: 3", 1)))
	require.NoError(t, err)
	_, _, err = usage.Publish(t.Context(), db, file, "test", time.Now())
	require.NoError(t, err)

	cmd := exec.CommandContext(t.Context(), builds(t, strings.ReplaceAll(blocks(t, "go")[0], "127.0.0.1:8080", where)))
	cmd.Env = append(os.Environ(), "DATABASE_URL="+database, "STATE_DIRECTORY="+t.TempDir())
	var said bytes.Buffer
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ask := func() (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+where+"/events", nil)
		require.NoError(t, err)
		r.Header.Set("X-Account", "acme")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, ""
		}
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(body)
	}
	call := func() (status int, body string) { // until it serves, and a database that is slow on a loaded machine has answered
		require.Eventually(t, func() bool {
			status, body = ask()
			return status != 0 && status != http.StatusServiceUnavailable
		}, time.Minute, 20*time.Millisecond)
		return status, body
	}
	for range 3 {
		status, _ := call()
		require.Equal(t, http.StatusAccepted, status)
	}
	status, body := call()
	require.Equal(t, http.StatusPaymentRequired, status)
	require.Contains(t, body, `"upgrade_url":"https://example.com/upgrade"`)

	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, <-ended, said.String())
	require.Contains(t, said.String(), "Server closed")
	_, err = usage.Fold(t.Context(), db, 5000)
	require.NoError(t, err)
	all, err := usage.Totals(t.Context(), db, "acme", time.Now())
	require.NoError(t, err)
	used := int64(0)
	for _, one := range all {
		used += one.Used
	}
	require.EqualValues(t, 3, used)
	var states string
	require.NoError(t, db.QueryRow(t.Context(), "SELECT string_agg(state, ' ') FROM weir.nodes WHERE state <> 'internal'").Scan(&states))
	require.Equal(t, "stopped", states)
}

// free is an address that nobody serves on.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().String()
}

// builds makes a program of a text.
func builds(t *testing.T, text string) string {
	t.Helper()
	top, err := filepath.Abs(root)
	require.NoError(t, err)
	dir := t.TempDir()
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(top, "internal/readme/program/main.go"): filepath.Join(dir, "main.go")}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(text), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "program"), "-overlay", filepath.Join(dir, "overlay.json"), "./internal/readme/program")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return filepath.Join(dir, "program")
}
