package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/stripe/stripe-go/v79"

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
	if what := stripeRemedy(err); what != "" {
		return fmt.Errorf("%w: %s", err, what)
	}
	return err
}

func stripeRemedy(err error) string {
	var said *stripe.Error
	var call *url.Error
	var untrusted *tls.CertificateVerificationError
	var garbled tls.RecordHeaderError
	switch {
	case errors.Is(err, context.Canceled):
	case errors.As(err, &said):
		switch status := said.HTTPStatusCode; {
		case status == http.StatusUnauthorized:
			return "Stripe does not know the key: set STRIPE_API_KEY to one that the Dashboard shows, of the right account"
		case status == http.StatusForbidden:
			return "give the key of STRIPE_API_KEY this permission (docs/stripe-setup.md lists what is needed)"
		case status == http.StatusTooManyRequests:
			return "try again in a minute: Stripe has too many requests from this account"
		case status >= http.StatusInternalServerError:
			return "try again: this is Stripe's own fault, and status.stripe.com tells how long it lasts"
		}
	case errors.As(err, &untrusted), errors.As(err, &garbled):
		return "who answers does not prove to be Stripe: mend STRIPE_API_BASE where it is set, the proxy in between (HTTPS_PROXY), or this machine's certificates and clock"
	case errors.As(err, &call):
		return "see that this machine reaches Stripe (name service, firewall, HTTPS_PROXY), and mend STRIPE_API_BASE where it is set; status.stripe.com tells of outages"
	case err != nil && strings.Contains(err.Error(), unreadable):
		return "who answers is not Stripe, or has an outage: mend STRIPE_API_BASE where it is set, or the proxy in between (HTTPS_PROXY); status.stripe.com tells of outages"
	}
	return ""
}

// unreadable is what stripe-go says of an answer that is not Stripe's JSON; there is no type for it.
const unreadable = "Couldn't deserialize JSON"

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
