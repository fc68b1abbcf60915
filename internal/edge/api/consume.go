package api

import (
	"context"
	"net/http"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/edge/wire"
)

// consumeFields is what POST /v1/consume takes.
const consumeFields = wire.Account | wire.Feature | wire.Units | wire.Rate | wire.Caller | wire.Key

// consume answers POST /v1/consume.
func (a *API) consume(w http.ResponseWriter, r *http.Request) int {
	s := a.take()
	defer a.putBack(s)
	list, status := a.parse(w, r, s, wire.Shape{
		Allowed: consumeFields, Required: wire.Account | wire.Feature, Most: MaxBatch,
	})
	if status != 0 {
		return status
	}
	if keys := r.Header["Idempotency-Key"]; len(keys) > 0 {
		if list || len(keys) > 1 || s.calls[0].Has&wire.Key != 0 {
			return invalid(w, "The header Idempotency-Key goes with one call, once: in a list, give each call its own member idempotency_key.")
		}
		s.calls[0].Key, s.calls[0].Has = keys[0], s.calls[0].Has|wire.Key
	}
	if list {
		return a.batch(r.Context(), w, s)
	}
	var v verdict
	a.decide(r.Context(), &s.calls[0], &v)
	return a.answer(w, s, &v)
}

// verdict is what became of a call: a fault, a decision about the rate that refuses, or one about the quota.
type verdict struct {
	rate, quota enforcer.Decision
	err         error
}

// tooFast reports whether the rate was asked and refuses.
func (v *verdict) tooFast() bool { return !v.rate.Allowed && v.rate.Reason != "" }

// refusal is the decision that the call fails by, or nil; asked is whether the quota was.
func (v *verdict) refusal(asked bool) *enforcer.Decision {
	switch {
	case v.tooFast():
		return &v.rate
	case asked && !v.quota.Allowed:
		return &v.quota
	}
	return nil
}

// decide asks the plan's rate first, and then the quota: a call above the rate spends nothing.
func (a *API) decide(ctx context.Context, c *wire.Call, v *verdict) {
	if a.rate(ctx, c, v); v.err != nil || v.tooFast() {
		return
	}
	if c.Has&wire.Key != 0 {
		v.quota, v.err = a.cfg.Enforcer.ConsumeOnce(ctx, c.Account, c.Feature, c.Units, c.Key)
	} else {
		v.quota, v.err = a.cfg.Enforcer.Consume(ctx, c.Account, c.Feature, c.Units)
	}
}

// rate asks the plan's rate, unless the call says not to. A refusal comes with what is known of the quota.
func (a *API) rate(ctx context.Context, c *wire.Call, v *verdict) {
	if !c.Rate {
		return
	}
	v.rate, v.err = a.cfg.Enforcer.Allow(ctx, c.Account, c.Caller)
	if v.err == nil && !v.rate.Allowed {
		v.quota, _ = a.cfg.Enforcer.Standing(c.Account, c.Feature)
	}
}

// answer writes a verdict.
func (a *API) answer(w http.ResponseWriter, s *scratch, v *verdict) int {
	if v.err != nil {
		return a.fail(w, v.err)
	}
	out := a.cfg.Enforcer.Answers(a.cfg.Draft)
	out.Headers(w.Header(), v.rate, v.quota)
	if d := v.refusal(true); d != nil {
		out.Refuse(w, *d)
		return out.Status(*d)
	}
	s.out = append(s.encoder.append(s.out[:0], &v.quota), '\n')
	return a.send(w, s.out)
}

// fail answers an error of the enforcer.
func (a *API) fail(w http.ResponseWriter, err error) int {
	status := a.cfg.Enforcer.Answers(a.cfg.Draft).Fail(w, err)
	a.note(status, err)
	return status
}

// note logs an error of which the answer tells nothing.
func (a *API) note(status int, err error) {
	if status == http.StatusInternalServerError {
		a.cfg.Logger.Error("weir: a call failed in a way that has no answer", "error", err)
	}
}
