// Package embed serves the elements with which a host shows usage and prices on pages of its own: <weir-meter> and
// <weir-pricing>, standard web components without a framework. docs/embed.md says how they are used.
package embed

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the elements' text
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

//go:embed base.js
var base []byte

//go:embed meter.js
var meter []byte

//go:embed pricing.js
var pricing []byte

// Elements serves the scripts of the elements, and lets pages of named origins read usage. Make it with New; safe for
// concurrent use.
type Elements struct {
	origins map[string]bool
	scripts map[string]script
}

type script struct {
	text []byte
	tag  string // entity tag
}

// New makes the handler. origins are those whose pages may read the JSON of a usage link with a browser, such as
// https://app.example.com; none: no page of another origin may. An origin that no browser sends is an error.
func New(origins []string) (*Elements, error) {
	e := &Elements{origins: map[string]bool{}, scripts: map[string]script{}}
	for _, o := range origins {
		if err := checkOrigin(o); err != nil {
			return nil, err
		}
		e.origins[o] = true
	}
	for name, element := range map[string][]byte{"meter.js": meter, "pricing.js": pricing} {
		text := slices.Concat(base, []byte("\n"), element) // one file each: nothing to import, and no two versions to mix
		sum := sha256.Sum256(text)
		e.scripts["/embed/"+name] = script{text, `"` + hex.EncodeToString(sum[:12]) + `"`}
	}
	return e, nil
}

// checkOrigin admits what browsers send in Origin, letter for letter: anything else would never match.
func checkOrigin(o string) error {
	u, err := url.Parse(o)
	wrong := err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || o != u.Scheme+"://"+u.Host ||
		o != strings.ToLower(o) || u.Scheme == "https" && u.Port() == "443" || u.Scheme == "http" && u.Port() == "80" || strings.ContainsAny(o, "*, ")
	if wrong {
		return fmt.Errorf("embed origin %q: use an origin as browsers write it, in lower case and without a default port, such as https://app.example.com", o)
	}
	return nil
}

// ServeHTTP serves /embed/meter.js and /embed/pricing.js to the pages of all origins: the scripts tell nobody anything.
func (e *Elements) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s, ok := e.scripts[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/javascript; charset=utf-8")
	h.Set("Cache-Control", "public, max-age=300, stale-while-revalidate=86400")
	h.Set("ETag", s.tag)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Access-Control-Allow-Origin", "*") // modules are loaded by CORS
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(s.text))
}

// Share lets the pages of the origins read what next answers at a path that ends in .json: the numbers of a usage link.
// Whoever reads them needs the link's token all the same. Nothing else of next is shared.
func (e *Elements) Share(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".json") {
			h := w.Header()
			h.Add("Vary", "Origin")
			if o := r.Header["Origin"]; len(o) == 1 && e.origins[o[0]] {
				h.Set("Access-Control-Allow-Origin", o[0])
				h.Set("Access-Control-Expose-Headers", "Retry-After")
			}
		}
		next.ServeHTTP(w, r)
	})
}
