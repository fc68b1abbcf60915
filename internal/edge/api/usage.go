package api

import (
	"context"
	"net/http"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/edge/problem"
)

// usage answers GET /v1/usage/{account}: every feature's decision, as one more unit would be answered.
func (a *API) usage(w http.ResponseWriter, r *http.Request) int {
	ctx, cancel := context.WithTimeout(r.Context(), requestTime)
	defer cancel()
	account := r.PathValue("account")
	features := a.cfg.Enforcer.Features()
	if features == nil { // it has not started
		return a.fail(w, enforcer.ErrUnavailable)
	}
	body := append(make([]byte, 0, 64+240*len(features)), `{"account":`...)
	body = append(problem.AppendString(body, account), `,"features":{`...)
	for i, f := range features {
		d, err := a.cfg.Enforcer.Usage(ctx, account, f)
		if err != nil {
			return a.fail(w, err)
		}
		if d.Terms == nil && d.Reason == enforcer.Unavailable { // nothing is known: not an answer of zeroes
			return a.fail(w, enforcer.ErrUnavailable)
		}
		if i > 0 {
			body = append(body, ',')
		}
		body = append(problem.AppendString(body, f), ':')
		body = d.AppendJSON(body)
	}
	w.Header()["Cache-Control"] = a.noStore
	return a.send(w, append(body, '}', '}', '\n'))
}

// healthz answers while the process serves.
func (a *API) healthz(w http.ResponseWriter, _ *http.Request) int {
	return a.send(w, []byte("{\"status\":\"ok\"}\n"))
}

// readyz answers 200 when calls are decided, also by policy while the database is away, and 503 with the reason
// otherwise.
func (a *API) readyz(w http.ResponseWriter, _ *http.Request) int {
	if a.cfg.NotReady != nil {
		if why := a.cfg.NotReady(); why != "" {
			w.Header().Set("Retry-After", "1")
			return fault(w, http.StatusServiceUnavailable, string(enforcer.Unavailable), "Not ready", why)
		}
	}
	database := "ok"
	if a.cfg.Enforcer.Stats().Away {
		database = "away"
	}
	return a.send(w, []byte(`{"status":"ready","database":"`+database+"\"}\n"))
}
