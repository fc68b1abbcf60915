package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/edge/problem"
	"github.com/weirhq/weir/internal/edge/wire"
)

// reserve answers POST /v1/reserve: the plan's rate, and then units set aside. The answer is the decision with the
// reservation's id and state.
func (a *API) reserve(w http.ResponseWriter, r *http.Request) int {
	s := a.take()
	defer a.putBack(s)
	_, status := a.parse(w, r, s, wire.Shape{
		Allowed:  wire.Account | wire.Feature | wire.Units | wire.Rate | wire.Caller,
		Required: wire.Account | wire.Feature | wire.Units,
	})
	if status != 0 {
		return status
	}
	if len(r.Header["Idempotency-Key"]) > 0 {
		return invalid(w, "A reservation takes no Idempotency-Key: sent again, it sets units aside again, and what is not settled goes back by itself. Leave the header out.")
	}
	c := &s.calls[0]
	var v verdict
	if a.rate(r.Context(), c, &v); v.err != nil || v.tooFast() {
		return a.answer(w, s, &v)
	}
	held, err := a.cfg.Enforcer.Reserve(r.Context(), c.Account, c.Feature, c.Units)
	var refused *enforcer.RefusedError
	switch {
	case errors.As(err, &refused):
		v.quota = refused.Decision
		return a.answer(w, s, &v)
	case err != nil:
		return a.fail(w, err)
	}
	kept := a.reservations.add(held, time.Now())
	left := held.Decision()
	left.Remaining = max(0, left.Remaining-c.Units) // nobody else can have what is set aside
	a.cfg.Enforcer.Answers(a.cfg.Draft).Headers(w.Header(), v.rate, left)
	return a.send(w, reserved(kept.id, "open", held.Decision()))
}

// settle answers POST /v1/reservations/{id}/settle: what was used is counted, in the period of the reservation. A
// reservation that is closed keeps its outcome, which is answered again.
func (a *API) settle(w http.ResponseWriter, r *http.Request) int {
	s := a.take()
	defer a.putBack(s)
	_, status := a.parse(w, r, s, wire.Shape{Allowed: wire.Units, Required: wire.Units})
	if status != 0 {
		return status
	}
	kept := a.reservations.find(r.PathValue("id"))
	if kept == nil {
		return noReservation(w)
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	d, err := kept.held.Settle(context.WithoutCancel(r.Context()), s.calls[0].Units)
	if err != nil {
		return a.fail(w, err)
	}
	if kept.state == "open" {
		kept.state = "settled"
	}
	return a.outcome(w, kept, d)
}

// cancel answers POST /v1/reservations/{id}/cancel: everything goes back. A reservation that is closed stays as it is.
func (a *API) cancel(w http.ResponseWriter, r *http.Request) int {
	if status := a.empty(w, r); status != 0 {
		return status
	}
	kept := a.reservations.find(r.PathValue("id"))
	if kept == nil {
		return noReservation(w)
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	d, err := kept.held.Settle(context.WithoutCancel(r.Context()), 0) // a cancel that tells the standing
	if err != nil {
		return a.fail(w, err)
	}
	if kept.state == "open" {
		kept.state = "cancelled"
	}
	return a.outcome(w, kept, d)
}

func (a *API) outcome(w http.ResponseWriter, kept *reservation, d enforcer.Decision) int {
	a.cfg.Enforcer.Answers(a.cfg.Draft).Headers(w.Header(), enforcer.Decision{}, d)
	return a.send(w, reserved(kept.id, kept.state, d))
}

// reserved is {"reservation": id, "state": …} and the decision's members.
func reserved(id, state string, d enforcer.Decision) []byte {
	b := append(make([]byte, 0, 320), `{"reservation":`...)
	b = problem.AppendString(b, id)
	b = append(b, `,"state":`...)
	b = problem.AppendString(b, state)
	at := len(b)
	b = d.AppendJSON(b)
	b[at] = ',' // the decision's opening brace
	return append(b, '\n')
}

func noReservation(w http.ResponseWriter) int {
	return fault(w, http.StatusNotFound, problem.NotFound, "Not found",
		"There is no such reservation here: it was forgotten half an hour after it was made, or with the process that made it. What was set aside and not settled has gone back.")
}

// empty reads a body that says nothing: none, or {}.
func (a *API) empty(w http.ResponseWriter, r *http.Request) int {
	if r.ContentLength == 0 {
		return 0
	}
	s := a.take()
	defer a.putBack(s)
	_, status := a.parse(w, r, s, wire.Shape{})
	return status
}
