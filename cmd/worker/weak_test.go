package main

import (
	"testing"

	"github.com/stretchr/testify/require"

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
