package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/weirhq/weir/internal/edge/problem"
)

// token is the bearer token that callers must show. Digests are compared, so that the time taken tells neither its
// bytes nor its length.
type token struct{ digest [sha256.Size]byte }

// newToken returns nil where none is set: everybody is admitted.
func newToken(t string) *token {
	if t == "" {
		return nil
	}
	return &token{sha256.Sum256([]byte(t))}
}

// admits reports whether the request shows the token, as "Authorization: Bearer …", or in X-Weir-Token for proxies
// that pass their caller's Authorization on.
func (t *token) admits(r *http.Request) bool {
	if t == nil {
		return true
	}
	shown := r.Header.Get("X-Weir-Token")
	if shown == "" {
		scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return false
		}
		shown = strings.TrimLeft(rest, " ")
	}
	digest := sha256.Sum256([]byte(shown))
	return subtle.ConstantTimeCompare(digest[:], t.digest[:]) == 1
}

func unauthorized(w http.ResponseWriter) int {
	w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
	return fault(w, http.StatusUnauthorized, problem.Unauthorized, "Unauthorized",
		"The request shows no valid token: send Authorization: Bearer with the value of WEIR_API_TOKEN.")
}
