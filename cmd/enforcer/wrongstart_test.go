package main

import (
	"bytes"
	"context"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/pgtest"
	"github.com/weirhq/weir/internal/schematest"
)

// A process that can't stay says why, and nothing that sounds as if it had served or counted.
func TestAStartThatFailsSaysOnlyWhy(t *testing.T) {
	t.Parallel()
	plans := planFile(t, testPlans)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	for name, c := range map[string]struct {
		env  map[string]string
		args []string
		want string
	}{
		"no schema":         {map[string]string{"DATABASE_URL": pgtest.URL(t)}, nil, "run `worker migrate` first"},
		"no rights":         {map[string]string{"DATABASE_URL": withoutRights(t)}, nil, "grant it to the user in DATABASE_URL"},
		"journal in a file": {map[string]string{"DATABASE_URL": schematest.URL(t), "WEIR_JOURNAL_DIR": plans}, nil, "name a folder"},
		"journal nowhere":   {map[string]string{"DATABASE_URL": schematest.URL(t), "WEIR_JOURNAL_DIR": "/dev/null/journal"}, nil, "the folder for journals can't be used"},
		"port in use":       {map[string]string{"WEIR_ADDR": taken.Addr().String()}, nil, "another process serves there: stop it, or set WEIR_ADDR"},
		"proxy's in use": {
			map[string]string{"WEIR_PROXY_ADDR": taken.Addr().String()}, []string{"--upstream=http://127.0.0.1:1", "--feature=events"}, "set WEIR_PROXY_ADDR",
		},
		"no such port":       {map[string]string{"WEIR_ADDR": "127.0.0.1:99999"}, nil, "set WEIR_ADDR to an address of this machine"},
		"socket's folder":    {map[string]string{"WEIR_ADDR": filepath.Join(t.TempDir(), "none", "s")}, nil, "its folder must be there"},
		"socket's path":      {map[string]string{"WEIR_ADDR": "/" + strings.Repeat("x", 107)}, nil, "at most 107 bytes"},
		"no network":         {nil, []string{"--trusted-proxies=10.0.0"}, "\"10.0.0\" is no network: use one such as 10.0.0.0/8"},
		"token file is gone": {map[string]string{"WEIR_API_TOKEN_FILE": filepath.Join(t.TempDir(), "none")}, nil, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := map[string]string{
				"DATABASE_URL": "postgres://nobody@127.0.0.1:1/none", "WEIR_ADDR": "127.0.0.1:0", "WEIR_PLANS": plans, "WEIR_JOURNAL_DIR": t.TempDir(),
			}
			for k, v := range c.env {
				env[k] = v
			}
			var out, log bytes.Buffer
			err := run(t.Context(), c.args, func(name string) string { return env[name] }, &out, &log)
			require.ErrorContains(t, err, c.want)
			require.Empty(t, out.String())
			require.Empty(t, log.String())
		})
	}
}

// withoutRights is the URL of a migrated database for a role that may do nothing there.
func withoutRights(t *testing.T) string {
	t.Helper()
	full := schematest.URL(t)
	conn, err := pgx.Connect(t.Context(), full)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	u, err := url.Parse(full)
	require.NoError(t, err)
	role := "r" + strings.TrimPrefix(u.Path, "/")
	_, err = conn.Exec(t.Context(), "CREATE ROLE "+pgx.Identifier{role}.Sanitize())
	require.NoError(t, err)
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), full)
		require.NoError(t, err)
		_, err = conn.Exec(context.Background(), "DROP ROLE "+pgx.Identifier{role}.Sanitize())
		require.NoError(t, err)
		require.NoError(t, conn.Close(context.Background()))
	})
	q := u.Query()
	q.Set("role", role)
	u.RawQuery = q.Encode()
	return u.String()
}

func TestATrustedProxyMayBeOneAddress(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": "postgres://h/d", "WEIR_TRUSTED_PROXIES": "10.0.0.1,2001:db8::/32,::1"}
	o, err := parse(nil, func(name string) string { return env[name] }, &bytes.Buffer{}, &bytes.Buffer{})
	require.NoError(t, err)
	var got []string
	for _, n := range o.trusted() {
		got = append(got, n.String())
	}
	require.Equal(t, []string{"10.0.0.1/32", "2001:db8::/32", "::1/128"}, got)
}
