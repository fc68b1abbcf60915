package settings

import (
	"fmt"
	"strings"
)

// MinSecretChars is the least length of a bearer token and of a webhook's signing secret. What makes either safe is that
// it is random: 16 characters of `openssl rand -hex` are 64 bits, which no rate of guesses gets through.
const MinSecretChars = 16

// Token checks a bearer token: characters that a header can carry, and enough of them. An empty one is none.
func Token(variable, value string) error {
	if value == "" || len(value) >= MinSecretChars && !strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil
	}
	return fmt.Errorf("%s must be at least %d characters of printable ASCII without blanks: `openssl rand -hex 32` makes one", variable, MinSecretChars)
}

// SigningSecret checks what Stripe signs webhooks with. Its own secrets are twice as long as the bound.
func SigningSecret(value string) error {
	switch {
	case !strings.HasPrefix(value, "whsec_"):
		return fmt.Errorf("a signing secret does not begin with whsec_: copy the endpoint's signing secret, not the API key or the endpoint's id")
	case len(value) < MinSecretChars:
		return fmt.Errorf("a signing secret has %d characters, and at least %d are needed: copy the endpoint's signing secret whole", len(value), MinSecretChars)
	}
	return nil
}
