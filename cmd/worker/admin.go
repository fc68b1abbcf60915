package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/weirhq/weir/billing"
	"github.com/weirhq/weir/internal/edge/problem"
	"github.com/weirhq/weir/internal/settings"
	"github.com/weirhq/weir/usage"
	"github.com/weirhq/weir/web"
)

// adminFlags hold the token of the routes that change something.
type adminFlags struct {
	AdminTokenFile string `name:"admin-token-file" from:"WEIR_ADMIN_TOKEN_FILE" placeholder:"FILE" help:"File with the bearer token of the admin routes ($WEIR_ADMIN_TOKEN_FILE, or $WEIR_ADMIN_TOKEN itself). Without one they are refused."`

	token string
}

func (a *adminFlags) read(env func(string) string) error {
	a.token = env("WEIR_ADMIN_TOKEN")
	err := settings.FromFile(&a.token, a.AdminTokenFile, "WEIR_ADMIN_TOKEN")
	if err == nil {
		err = settings.Token("WEIR_ADMIN_TOKEN", a.token)
	}
	if err != nil {
		return usageError{err}
	}
	return nil
}

// token is a bearer token. Digests are compared, so that the time taken tells neither its bytes nor its length.
type token struct {
	digest [sha256.Size]byte
	set    bool
}

func newToken(t string) token { return token{sha256.Sum256([]byte(t)), t != ""} }

// admits reports whether the request shows the token. An unset token admits nobody.
func (t *token) admits(r *http.Request) bool {
	scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	digest := sha256.Sum256([]byte(strings.TrimSpace(shown)))
	same := subtle.ConstantTimeCompare(digest[:], t.digest[:]) == 1
	return t.set && same && strings.EqualFold(scheme, "Bearer")
}

// admin answers the routes for the host application.
type admin struct {
	token  token
	biller *billing.Biller
	log    *slog.Logger
}

const (
	settleTime = 20 * time.Second // within the server's own limit of an answer
	mostBody   = 4 << 10
)

func (a *admin) guard(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.token.admits(r) {
			h(w, r)
			return
		}
		message := "The request shows no valid token: send Authorization: Bearer with the value of WEIR_ADMIN_TOKEN."
		if !a.token.set {
			message = "This worker has no admin token, so its admin routes are refused: set WEIR_ADMIN_TOKEN."
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
		problem.New(http.StatusUnauthorized, problem.Unauthorized, "Unauthorized", message).Write(w)
	})
}

// settle reports all that is counted for an account. 200: Stripe has it. 202: some of it has to wait, and the call is to
// be made again before the subscription is changed.
func (a *admin) settle(w http.ResponseWriter, r *http.Request) {
	by, ok := web.ByHost(w, r, "the host asked for it")
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), settleTime)
	defer cancel()
	action := billing.Settle{Account: r.PathValue("account")}
	if _, err := a.biller.Do(ctx, &action, by); err != nil {
		a.fail(w, err)
		return
	}
	done := action.Done
	answer := struct {
		Settled  bool                 `json:"settled"`
		Features []billing.Settlement `json:"features"`
	}{true, done}
	if answer.Features == nil {
		answer.Features = []billing.Settlement{}
	}
	status := http.StatusOK
	for _, s := range done {
		if s.Waiting > 0 {
			answer.Settled, status = false, http.StatusAccepted
		}
	}
	reply(w, status, answer)
}

// link maps an account to the customer in the body.
func (a *admin) link(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Customer string `json:"customer"`
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostBody))
	dec.DisallowUnknownFields()
	err := dec.Decode(&body)
	if err == nil && dec.Decode(&struct{}{}) != io.EOF {
		err = errors.New("more than one value")
	}
	if err != nil || body.Customer == "" {
		problem.New(http.StatusBadRequest, problem.InvalidRequest, "Invalid request",
			`The body must be a JSON object with the customer's id at Stripe: {"customer": "cus_…"}.`).Write(w)
		return
	}
	by, ok := web.ByHost(w, r, "the host maps it")
	if !ok {
		return
	}
	account := r.PathValue("account")
	if _, err := a.biller.Do(r.Context(), &billing.MapCustomer{Account: account, Customer: body.Customer}, by); err != nil {
		a.fail(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]string{"account": account, "customer": body.Customer})
}

// fail maps an error to an answer, once. What is not the caller's fault is logged and not told.
func (a *admin) fail(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, usage.ErrNotFound):
		problem.New(http.StatusNotFound, problem.NotFound, "Not found", "No account of this id is known: it is made by its first call, or by mapping it.").Write(w)
	case errors.Is(err, billing.ErrNoStripe):
		problem.New(http.StatusServiceUnavailable, "no_stripe", "No Stripe", "This worker runs without Stripe: nothing is reported.").Write(w)
	case billing.IsPermanent(err):
		a.log.Info("an admin call was refused", "error", err)
		problem.New(http.StatusUnprocessableEntity, problem.InvalidRequest, "Refused",
			"The account or the customer's id cannot be used: account ids have 1 to 255 bytes, customer ids begin with cus_ and belong to the mode of the worker's key.").Write(w)
	default:
		a.log.Error("an admin call could not be done", "error", err)
		w.Header().Set("Retry-After", "5")
		problem.New(http.StatusServiceUnavailable, problem.Internal, "Unavailable", "It could not be done now; the worker's log says why. Try again.").Write(w)
	}
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a caller who has gone is told nothing
}
