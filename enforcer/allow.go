package enforcer

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/ratelimit"
)

// rates are the plans' rate limits, made ready for calls, and the callers' states under them.
type rates struct {
	limiter   *ratelimit.Limiter
	rules     atomic.Pointer[map[string]rate] // by plan
	anonymous atomic.Pointer[rate]
}

type rate struct {
	rule  *ratelimit.Rule
	terms *Terms
}

// anonymousCaller is no valid account id, so that addresses and accounts never share a state.
const anonymousCaller = "\x00anonymous"

// maxRateKey bounds the key of a caller within an account.
const maxRateKey = 255

// set takes the rates of a catalog. A limit that the limiter refuses is one that the plan file's validation let
// through by mistake: it is returned, and the old rates stay.
func (r *rates) set(c *plans.Catalog) error {
	rules := make(map[string]rate)
	for _, p := range c.Plans() {
		if !p.HasRate {
			continue
		}
		rule, err := ruleOf(p.Rate)
		if err != nil {
			return fmt.Errorf("rate of plan %s: %w", p.Name, err)
		}
		url := p.UpgradeURL
		if url == "" {
			url = c.UpgradeURL()
		}
		rules[p.Name] = rate{rule, &Terms{Plan: p.Name, Shadow: p.Shadow, UpgradeURL: url}}
	}
	var anonymous *rate
	if a, ok := c.Anonymous(); ok {
		rule, err := ruleOf(a)
		if err != nil {
			return fmt.Errorf("rate of anonymous callers: %w", err)
		}
		anonymous = &rate{rule, &Terms{}}
	}
	r.rules.Store(&rules)
	r.anonymous.Store(anonymous)
	return nil
}

func ruleOf(r plans.Rate) (*ratelimit.Rule, error) {
	return ratelimit.NewRule(ratelimit.Limit{
		Units: r.Limit, Window: r.Window, Algorithm: ratelimit.Algorithm(r.Algorithm), Burst: r.Burst, PerNode: r.Each,
	})
}

// Allow counts one call against the rate limit of the account's plan. key tells an account's callers apart (an API
// key, a user); "" is the account itself. By default the live nodes share the plan's limit. A plan without a rate
// limit allows every call. Errors: ErrInvalidAccount, ErrInvalidKey; ErrUnavailable before Start and after Stop.
func (e *Enforcer) Allow(ctx context.Context, account, key string) (Decision, error) {
	if !e.running.Load() {
		return Decision{}, ErrUnavailable
	}
	if len(key) > maxRateKey {
		return Decision{}, fmt.Errorf("%w: the rate key has %d bytes", ErrInvalidKey, len(key))
	}
	a, ok := e.accounts.Load(account)
	if !ok {
		if !validAccount(account) {
			return Decision{}, ErrInvalidAccount
		}
		a = e.accountOf(account)
	}
	if e.clock.now() >= a.until() {
		stop := time.NewTimer(e.cfg.MaxWait)
		defer stop.Stop()
		e.contact(ctx, &slot{account: a}, stop.C) // a plan that is known stays where the database does not answer
	}
	known := a.known.Load()
	if known == nil {
		e.stats.unavailable.Add(1)
		return Decision{Reason: Unavailable, RetryAfter: time.Second}, nil
	}
	rule, ok := (*e.rates.rules.Load())[known.plan]
	if !ok {
		return Decision{Allowed: true, Reason: OK, Unlimited: true}, nil
	}
	d := e.allow(account, key, rule)
	d.Allowed = d.Allowed || known.shadow
	return d, nil
}

// AllowAnonymous counts one call of a caller who is known only by an address, against the plan file's anonymous rate.
// Without one every call is allowed. Errors: ErrInvalidKey; ErrUnavailable before Start and after Stop.
func (e *Enforcer) AllowAnonymous(address string) (Decision, error) {
	if !e.running.Load() {
		return Decision{}, ErrUnavailable
	}
	if address == "" || len(address) > maxRateKey {
		return Decision{}, fmt.Errorf("%w: the address has %d bytes", ErrInvalidKey, len(address))
	}
	rule := e.rates.anonymous.Load()
	if rule == nil {
		return Decision{Allowed: true, Reason: OK, Unlimited: true}, nil
	}
	return e.allow(anonymousCaller, address, *rule), nil
}

func (e *Enforcer) allow(caller, key string, r rate) Decision {
	x := e.rates.limiter.Allow(caller, key, r.rule, 1, e.clock.rateTime())
	d := Decision{Allowed: x.Allowed, Reason: OK, Limit: x.Limit, Remaining: x.Remaining, Used: x.Limit - x.Remaining, Terms: r.terms}
	if !x.Allowed {
		d.Reason, d.RetryAfter = RateLimited, x.RetryAfter
	}
	return d
}

// rateTime is the time that rate limits run on: monotonic, or the custom clock's.
func (c *coarse) rateTime() int64 {
	if c.custom != nil {
		return c.now()
	}
	return c.mono.Load()
}
