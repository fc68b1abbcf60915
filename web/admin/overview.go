package admin

import "net/http"

// overview shows how everything stands.
func (a *Admin) overview(w http.ResponseWriter, r *http.Request, who person) {
	var v overviewView
	a.render(w, r, who, http.StatusOK, "overview.html", view{Title: "Overview", Section: "overview", Page: v})
}

type overviewView struct{}
