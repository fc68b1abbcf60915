package api

import (
	_ "embed"
	"net/http"
)

// description is the OpenAPI 3.1 description of every route; a test holds it against the handlers.
//
//go:embed openapi.json
var description []byte

func (a *API) describe(w http.ResponseWriter, _ *http.Request) int {
	return a.send(w, description)
}
