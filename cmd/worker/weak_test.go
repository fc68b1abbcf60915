package main

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/schema"
	"github.com/weirhq/weir/internal/stripesim"
)

// What protects routes and webhooks is refused at the start where it could be guessed. No message has it.
func TestAWorkerWithASecretThatCouldBeGuessedDoesNotStart(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"WEIR_ADMIN_TOKEN": "WEIR_ADMIN_TOKEN must be at least 16 characters", "WEIR_SECRET": "at least 32 are needed",
		"STRIPE_WEBHOOK_SECRET": "STRIPE_WEBHOOK_SECRET: a signing secret has 11 characters, and at least 16 are needed",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newMigrated(t)
			p.stripe(stripesim.Config{})
			p.env[name] = "whsec_short"
			if name == "STRIPE_WEBHOOK_SECRET" {
				p.env[name] = "whsec_planted_secret," + p.env[name]
			}
			_, err := p.fails(exitUsage, "serve", "--addr", "127.0.0.1:0")
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "whsec_short")
		})
	}
}

// A command that can't use the database says what to do about it, once and without the terminal's columns broken.
func TestACommandSaysWhatToDoAboutTheDatabase(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	u, err := url.Parse(p.env["DATABASE_URL"])
	require.NoError(t, err)
	u.Path = "/weir_no_such_database"
	for database, want := range map[string]string{
		u.String(): "create the database, or mend DATABASE_URL", "postgres://127.0.0.1:1/weir": "see that it runs and that this machine reaches it",
		"nonsense": "write it as postgres://",
	} {
		p.env["DATABASE_URL"] = database
		for _, args := range [][]string{{"migrate"}, {"nodes"}, {"usage", "show", "acme"}} {
			_, _, err := p.run(args...)
			require.ErrorContains(t, err, want)
			require.Equal(t, 1, strings.Count(err.Error(), want))
		}
	}
	out, _, err := p.run("doctor")
	require.Error(t, err)
	require.NotContains(t, out, "�")
	_, err = p.fails(exitUsage, "serve", "--no-stripe", "--stop-timeout", "0s", "--addr", "127.0.0.1:0")
	require.ErrorContains(t, err, "--stop-timeout is 0s: use 1s to 1h")
}

// A program of before says that the database is ahead of it, and changes nothing.
func TestMigrateSaysThatTheDatabaseIsAhead(t *testing.T) {
	t.Parallel()
	p := newMigrated(t)
	next := schema.Version() + 1
	p.sql("INSERT INTO weir.schema_version (version, name) SELECT max(version) + 1, 'next' FROM weir.schema_version")
	require.Contains(t, p.do("migrate"), fmt.Sprintf("is at version %d, ahead of this program's %d", next, schema.Version()))
	require.JSONEq(t, fmt.Sprintf(`{"version": %d, "applied": []}`, next), p.do("--json", "migrate"))
}
