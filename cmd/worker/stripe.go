package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/settings"
)

// stripeFlags say how Stripe is reached. Secrets come by environment or file.
type stripeFlags struct {
	StripeKeyFile string `name:"stripe-key-file" from:"STRIPE_API_KEY_FILE" placeholder:"FILE" help:"File with the Stripe key ($STRIPE_API_KEY_FILE, or $STRIPE_API_KEY itself)."`
	StripeBase    string `name:"stripe-base" from:"STRIPE_API_BASE" placeholder:"URL" help:"Stripe's address, for tests ($STRIPE_API_BASE)."`

	key   string
	watch func(http.RoundTripper) http.RoundTripper // for traces; nil: none
}

func (s *stripeFlags) read(env func(string) string) error {
	s.key = env("STRIPE_API_KEY")
	if err := settings.FromFile(&s.key, s.StripeKeyFile, "STRIPE_API_KEY"); err != nil {
		return usageError{err}
	}
	return nil
}

// client makes the Stripe client, or nil without a key.
func (s *stripeFlags) client() (*billing.Client, error) {
	if s.key == "" {
		return nil, nil //nolint:nilnil // billing's way to run without Stripe
	}
	if u, err := url.Parse(s.StripeBase); s.StripeBase != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return nil, usageError{fmt.Errorf("STRIPE_API_BASE is %q: write it as https://host, or leave it out for Stripe's own address", s.StripeBase)}
	}
	client, err := billing.NewClient(billing.ClientConfig{Key: s.key, BaseURL: s.StripeBase, Wrap: s.watch})
	if err != nil {
		return nil, usageError{fmt.Errorf("STRIPE_API_KEY: %w", err)}
	}
	return client, nil
}

// mendStripe adds to an error of a call to Stripe what to do about it. Stripe's own word about a request says it itself.
func mendStripe(err error) error {
	if what := billing.Remedy(err); what != "" {
		return fmt.Errorf("%w: %s", err, what)
	}
	return err
}

// webhookFlags are the signing secrets of the webhook endpoints.
type webhookFlags struct {
	WebhookSecretFile string `name:"webhook-secret-file" from:"STRIPE_WEBHOOK_SECRET_FILE" placeholder:"FILE" help:"File with the webhook's signing secrets, separated by commas ($STRIPE_WEBHOOK_SECRET_FILE, or $STRIPE_WEBHOOK_SECRET itself)."`

	secrets []string
}

func (w *webhookFlags) read(env func(string) string) error {
	all := env("STRIPE_WEBHOOK_SECRET")
	if err := settings.FromFile(&all, w.WebhookSecretFile, "STRIPE_WEBHOOK_SECRET"); err != nil {
		return usageError{err}
	}
	for one := range strings.SplitSeq(all, ",") {
		if one = strings.TrimSpace(one); one != "" {
			w.secrets = append(w.secrets, one)
		}
	}
	return nil
}
