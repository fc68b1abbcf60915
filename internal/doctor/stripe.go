package doctor

import (
	"context"
	"strings"
	"time"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/books"
	"github.com/weirhq/weir/internal/settings"
	"github.com/weirhq/weir/usage"
)

const webhookPath = "/stripe/webhook"

func (e *examination) stripe(ctx context.Context) {
	catalog := e.cfg.Catalog
	if catalog == nil && e.pool != nil { // no file is named: what is published counts
		if last, err := usage.LatestCatalog(ctx, e.pool); err == nil {
			catalog = last.Catalog
		}
	}
	bills := catalog != nil && catalog.BillsOverage()
	if e.cfg.Stripe == nil {
		switch {
		case bills && e.cfg.NoStripe:
			e.ok("stripe key", "none, on purpose: overage is recorded, and nothing is reported")
		case bills:
			e.wrong("stripe key", "set STRIPE_API_KEY; a worker that runs without on purpose is looked at by `worker doctor --no-stripe`", "a plan bills overage and there is no Stripe key: nothing would be reported")
		case catalog == nil:
			e.ok("stripe key", "none; no plan file is named or published, so whether one is needed was not looked at")
		default:
			e.ok("stripe key", "none, and no plan needs one")
		}
		return
	}
	if !e.key(ctx) {
		return
	}
	e.webhook(ctx)
	if e.cfg.Catalog == nil {
		e.warn("meters", "name the plan file: WEIR_PLANS or --plans", "there is no plan file to compare with Stripe")
		return
	}
	offer, err := e.cfg.Stripe.Offer(ctx, e.cfg.Catalog)
	if err != nil {
		e.wrong("meters", "try again; a missing right is listed above", "what is at Stripe could not be read: %v", err)
		return
	}
	all := offer.Differences()
	for _, d := range all {
		if d.Warning {
			e.warn("meters", d.Next, "%s", d.Message)
		} else {
			e.wrong("meters", d.Next, "%s", d.Message)
		}
	}
	if len(all) == 0 {
		e.ok("meters", "meters and prices at Stripe are what the plan file says")
	}
}

// key looks at the key's mode and rights, and reports whether to go on.
func (e *examination) key(ctx context.Context) bool {
	c := e.cfg.Stripe
	mode := "test mode"
	if c.Live() {
		mode = "live mode"
	}
	if e.biller != nil {
		h, err := books.ReadHealth(ctx, e.pool, e.now)
		if err == nil && h.Live != nil && *h.Live != c.Live() {
			e.wrong("stripe key", "use the key of the other mode, or another database", "the key is of %s, and this database belongs to the other mode", mode)
			return false
		}
	}
	rights, err := c.Rights(ctx)
	switch {
	case billing.IsUnauthorized(err):
		e.wrong("stripe key", "make a new key in the Dashboard and set STRIPE_API_KEY; what waits is sent then", "Stripe does not know the key: it was revoked or rolled")
		return false
	case err != nil:
		e.wrong("stripe key", "check that this machine reaches Stripe; see status.stripe.com", "%v", err)
		return false
	}
	missing := 0
	for _, r := range rights {
		if !r.Allowed {
			missing++
			e.wrong("stripe rights", "give the restricted key this permission", "the key lacks %q: %s", r.Name, r.Message)
		}
	}
	if missing == 0 {
		e.ok("stripe rights", "the key may do what is needed (%d were tried)", len(rights))
	}
	if c.Restricted() {
		e.ok("stripe key", "a restricted key of %s", mode)
	} else {
		e.warn("stripe key", "make a restricted key (docs/stripe-setup.md lists its permissions)", "a secret key of %s, which may do everything", mode)
	}
	return true
}

// webhook looks at the endpoint and at what came of it.
func (e *examination) webhook(ctx context.Context) {
	if len(e.cfg.Secrets) == 0 {
		e.wrong("webhook secret", "set STRIPE_WEBHOOK_SECRET to the endpoint's signing secret (whsec_…)", "no signing secret is set: every webhook would be refused")
	}
	for _, s := range e.cfg.Secrets {
		if err := settings.SigningSecret(s); err != nil {
			e.wrong("webhook secret", "set STRIPE_WEBHOOK_SECRET to the endpoint's signing secret (whsec_…), whole", "%v", err)
		}
	}
	all, err := e.cfg.Stripe.Endpoints(ctx)
	if err != nil {
		e.warn("webhook endpoint", "give the key the permission Webhook endpoints: read, or look in the Dashboard", "the endpoints could not be read: %v", err)
		return
	}
	var mine []billing.Endpoint
	for _, one := range all {
		if one.URL == e.cfg.WebhookURL || e.cfg.WebhookURL == "" && strings.HasSuffix(one.URL, webhookPath) {
			mine = append(mine, one)
		}
	}
	if len(mine) == 0 {
		e.wrong("webhook endpoint", "make one in the Dashboard for https://…"+webhookPath+" (docs/stripe-setup.md lists its events)", "no endpoint at Stripe leads here: changes are found by the sweep only, up to a day late")
		return
	}
	for i := range mine {
		e.endpoint(&mine[i])
	}
	if e.biller == nil {
		return
	}
	in, err := e.biller.Intake(ctx)
	switch {
	case err != nil:
		e.wrong("webhooks", "look at the database's log", "%v", err)
	case in.LastWebhook.IsZero():
		e.warn("webhooks", "send a test event from the Dashboard, and look at the endpoint's deliveries there", "none has arrived yet")
	default:
		e.ok("webhooks", "the last one arrived %s ago", age(e.now.Sub(in.LastWebhook)))
	}
}

func (e *examination) endpoint(one *billing.Endpoint) {
	missing := one.MissingEvents()
	switch {
	case one.Status != "enabled":
		e.wrong("webhook endpoint", "enable it in the Dashboard, then run `worker sync`", "endpoint %s is %s", one.ID, one.Status)
	case len(missing) > 0:
		e.wrong("webhook endpoint", "add the events in the Dashboard", "endpoint %s does not send %s", one.ID, strings.Join(missing, ", "))
	case one.APIVersion == "":
		e.warn("webhook endpoint", "make the endpoint again with an API version of its own", "endpoint %s has the account's API version, which moves", one.ID)
	default:
		e.ok("webhook endpoint", "endpoint %s sends what is needed, in API version %s", one.ID, one.APIVersion)
	}
}

const (
	warnReport = 15 * time.Minute
	maxReport  = 45 * time.Minute
)
