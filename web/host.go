package web

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/edge/problem"
	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/web/link"
)

// admin admits who shows the bearer token. Digests are compared, so that the time taken tells nothing of it.
func (p *Pages) admin(h http.HandlerFunc) http.Handler {
	want := sha256.Sum256([]byte(p.cfg.AdminToken))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		private(w)
		scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(shown)))
		same := subtle.ConstantTimeCompare(got[:], want[:]) == 1
		switch {
		case p.cfg.AdminToken == "":
			refuse(w, "This worker has no admin token, so its admin routes are refused: set WEIR_ADMIN_TOKEN.")
		case !same || !strings.EqualFold(scheme, "Bearer"):
			refuse(w, "The request shows no valid token: send Authorization: Bearer with the value of WEIR_ADMIN_TOKEN.")
		default:
			h(w, r)
		}
	})
}

func refuse(w http.ResponseWriter, message string) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
	problem.New(http.StatusUnauthorized, problem.Unauthorized, "Unauthorized", message).Write(w)
}

func invalid(w http.ResponseWriter, message string) {
	problem.New(http.StatusBadRequest, problem.InvalidRequest, "Invalid request", message).Write(w)
}

// accountOf is the account that a path names, or the answer of why it can't be one.
func accountOf(w http.ResponseWriter, r *http.Request) (string, bool) {
	a := r.PathValue("account")
	if err := usage.CheckAccount(a); err != nil {
		invalid(w, "The account is 1 to 255 bytes of UTF-8, without control characters or blanks at its ends.")
		return "", false
	}
	return a, true
}

// accountUsage answers with an account's running period by day and its past ones.
func (p *Pages) accountUsage(w http.ResponseWriter, r *http.Request) {
	account, ok := accountOf(w, r)
	if !ok {
		return
	}
	b, err := p.statement(r.Context(), account)
	if err != nil {
		p.unavailable(w, err)
		return
	}
	p.writeJSON(w, b.json())
}

func (p *Pages) unavailable(w http.ResponseWriter, err error) {
	p.log.Warn("a request of the host failed", "error", err)
	w.Header().Set("Retry-After", "5")
	problem.New(http.StatusServiceUnavailable, "unavailable", "Unavailable", "The database can't be read now: try again.").Write(w)
}

const (
	defaultLinkLife = 24 * time.Hour
	maxHostBody     = 4 << 10
)

// readBody reads a small JSON object, or nothing at all.
func readBody(w http.ResponseWriter, r *http.Request, into any) bool {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxHostBody))
	dec.DisallowUnknownFields()
	err := dec.Decode(into)
	if errors.Is(err, io.EOF) {
		return true
	}
	if err != nil || dec.More() {
		invalid(w, "The body is not one JSON object with the members that this call takes.")
		return false
	}
	return true
}

// accountLink makes a link to an account's usage page.
func (p *Pages) accountLink(w http.ResponseWriter, r *http.Request) {
	account, ok := accountOf(w, r)
	if !ok {
		return
	}
	var body struct {
		Seconds int64 `json:"expires_in"`
	}
	if !readBody(w, r, &body) {
		return
	}
	life := time.Duration(body.Seconds) * time.Second
	if body.Seconds == 0 {
		life = defaultLinkLife
	}
	if body.Seconds < 0 || body.Seconds > int64(link.MaxLifetime/time.Second) {
		invalid(w, "expires_in is a number of seconds, up to 366 days.")
		return
	}
	if p.cfg.Links == nil || p.cfg.PublicURL == "" {
		problem.New(http.StatusServiceUnavailable, "unavailable", "Unavailable",
			"This worker makes no links: set WEIR_SECRET, and WEIR_PUBLIC_URL to where customers reach it.").Write(w)
		return
	}
	until := p.cfg.WallClock().Add(life).Truncate(time.Second)
	url, err := p.cfg.Links.URL(p.cfg.PublicURL, account, until)
	if err != nil {
		p.unavailable(w, err)
		return
	}
	p.writeJSON(w, struct {
		URL     string    `json:"url"`
		Expires time.Time `json:"expires_at"`
	}{url, until.UTC()})
}

// accountContact stores where an account's warnings go by mail.
func (p *Pages) accountContact(w http.ResponseWriter, r *http.Request) {
	account, ok := accountOf(w, r)
	if !ok {
		return
	}
	var body struct {
		Email string `json:"email"`
	}
	if !readBody(w, r, &body) {
		return
	}
	by, ok := ByHost(w, r, "the host sets it")
	if !ok {
		return
	}
	_, err := p.biller.Do(r.Context(), &billing.SetContact{Account: account, Email: body.Email}, by)
	if billing.IsPermanent(err) {
		invalid(w, "email is one bare address such as billing@example.com, or empty to forget it.")
		return
	}
	if err != nil {
		p.unavailable(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// ByHost is who acts by one of the host's routes: the headers Weir-Actor and Weir-Reason may say on whose behalf and why;
// without the one it is the host, without the other the reason given here. Headers that the audit log can't keep are
// answered 400, and nothing is to be done.
func ByHost(w http.ResponseWriter, r *http.Request, reason string) (by usage.By, ok bool) {
	by = usage.By{Actor: cmp.Or(r.Header.Get("Weir-Actor"), "host"), Way: usage.WayAPI, Reason: cmp.Or(r.Header.Get("Weir-Reason"), reason)}
	if by.Check() != nil {
		invalid(w, "Weir-Actor takes up to 255 bytes of UTF-8, Weir-Reason up to 1,000. Nothing was changed.")
		return by, false
	}
	return by, true
}
