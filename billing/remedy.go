package billing

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/stripe/stripe-go/v79"
)

// Remedy says what an operator can do about an error of a call to Stripe; "" where nothing is known, or Stripe's own word
// says it.
func Remedy(err error) string {
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
