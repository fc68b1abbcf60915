package main

import (
	"context"
	"net/http"
	"time"

	"github.com/weirhq/weir/internal/schema"
	pages "github.com/weirhq/weir/web/admin"
)

// routes are the worker's pages and endpoints.
func (o *office) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("POST /stripe/webhook", o.metrics.Measured("webhook", o.biller.Webhook()))
	mux.Handle("POST /v1/settle/{account}", o.metrics.Measured("settle", o.console.Bounded(o.admin.guard(o.admin.settle))))
	mux.Handle("PUT /v1/accounts/{account}", o.metrics.Measured("accounts", o.console.Bounded(o.admin.guard(o.admin.link))))
	mux.Handle("GET /usage/", o.metrics.Measured("usage", o.elements.Share(o.pages)))
	mux.Handle("GET /embed/", o.metrics.Measured("embed", o.elements))
	mux.Handle("GET /usage/{token}/live", o.pages) // lasts for minutes, which says nothing of how fast pages are
	mux.Handle("POST /usage/", o.metrics.Measured("usage", o.pages))
	mux.Handle("GET /usage-assets/", o.pages)
	mux.Handle("GET /plans", o.metrics.Measured("plans", o.pages))
	mux.Handle("GET /plans.json", o.metrics.Measured("plans", o.pages))
	for _, route := range []string{"GET /v1/accounts/{account}/usage", "POST /v1/accounts/{account}/link", "PUT /v1/accounts/{account}/contact"} {
		mux.Handle(route, o.metrics.Measured("accounts", o.console.Bounded(o.pages)))
	}
	mux.Handle("/admin", o.metrics.Measured("admin", o.console))
	mux.Handle("/admin/", o.metrics.Measured("admin", o.console))
	mux.Handle(pages.JobsPath+"/", o.metrics.Measured("admin_jobs", o.console))
	mux.Handle("GET /metrics", o.metrics.Page())
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /readyz", o.ready)
	return mux
}

// readiness is the answer of /readyz. It names no secrets: whoever reaches the port may read it.
type readiness struct {
	Ready  bool      `json:"ready"`
	Reason string    `json:"reason,omitempty"`
	Time   time.Time `json:"time,omitzero"` // business time, as this process has it; none before it has reached the database
}

// ready answers 200 while webhooks can be stored and the jobs run: the database answers, its schema is one that this
// program knows, and the worker neither starts nor stops.
func (o *office) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	answer := readiness{Ready: true, Time: o.clock.Now()}
	if why := o.notReady(ctx); why != "" {
		answer.Ready, answer.Reason = false, why
	}
	answer.write(w)
}

func (o *office) notReady(ctx context.Context) string {
	if err := o.pool.Ping(ctx); err != nil {
		return "the database does not answer"
	}
	if err := schema.Check(ctx, o.pool); err != nil {
		return "the database's schema is not one that this program knows"
	}
	if !o.working.Load() {
		return "the worker starts or stops"
	}
	return ""
}
