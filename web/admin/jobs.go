package admin

import (
	"net/http"
	"strings"
)

// jobsPolicy is the policy of River's own page: a program of its own files that styles itself as it runs. Nothing of
// it is inline but those styles, and it talks to nobody else.
const jobsPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// jobRoutes serve River's page to those whom the guard admits. Its calls that change something come from its own page:
// they have no form to carry a key in, so the browser's word of where they come from decides.
func (a *Admin) jobRoutes() {
	if a.cfg.Jobs == nil {
		return
	}
	serve := a.admitted(func(w http.ResponseWriter, r *http.Request, who person) {
		if err := a.own.Check(r); err != nil {
			a.foreign(w, r)
			return
		}
		w.Header().Set("Content-Security-Policy", jobsPolicy)
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			a.changeJobs(w, r, who)
			return
		}
		if strings.HasPrefix(r.URL.Path, JobsPath+"/assets/") {
			w.Header().Set("Cache-Control", "private, max-age=31536000, immutable") // their names change with their content
		}
		a.cfg.Jobs.ServeHTTP(w, r)
	})
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		a.mux.Handle(method+" "+JobsPath+"/", serve)
	}
	a.mux.Handle("GET "+JobsPath, http.RedirectHandler(JobsPath+"/", http.StatusMovedPermanently))
}
