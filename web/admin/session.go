package admin

import (
	"crypto/hmac"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	sessionCookie = "weir_admin"
	saidCookie    = "weir_admin_said"
	sessionLife   = 8 * time.Hour
	saidLife      = time.Minute
	maxSaid       = 1000 // bytes of a message
)

// newSession is the value of a session's cookie. Its key follows from the token: a new token ends all sessions.
func (g *guard) newSession(name string) string {
	body := strconv.FormatInt(g.wall().Add(sessionLife).Unix(), 10) + "." + encode([]byte(name))
	return body + "." + encode(g.seal("session", body))
}

// openSession is the name in a session that is ours and not over.
func (g *guard) openSession(value string) (string, bool) {
	body, mac, ok := cutLast(value, ".")
	if !ok || len(value) > 1000 {
		return "", false
	}
	if shown, err := decode(mac); err != nil || !hmac.Equal(shown, g.seal("session", body)) {
		return "", false
	}
	until, name, _ := strings.Cut(body, ".")
	at, err := strconv.ParseInt(until, 10, 64)
	if err != nil || !g.wall().Before(time.Unix(at, 0)) {
		return "", false
	}
	b, err := decode(name)
	return string(b), err == nil
}

// formKey is what a form on a page of this person carries.
func (g *guard) formKey(who person) string { return encode(g.seal("form", who.mark)) }

// flash is what a page says of the action before it.
type flash struct {
	Kind string // good, or bad
	Text string
}

func (g *guard) sealFlash(f flash) string {
	if len(f.Text) > maxSaid {
		f.Text = strings.ToValidUTF8(f.Text[:maxSaid], "") + "…"
	}
	body := encode([]byte(f.Kind + "\x00" + f.Text))
	return body + "." + encode(g.seal("flash", body))
}

func (g *guard) openFlash(value string) flash {
	body, mac, _ := cutLast(value, ".")
	if shown, err := decode(mac); err != nil || !hmac.Equal(shown, g.seal("flash", body)) {
		return flash{}
	}
	b, err := decode(body)
	if err != nil {
		return flash{}
	}
	kind, text, _ := strings.Cut(string(b), "\x00")
	return flash{kind, text}
}

// setCookie sets a cookie of the admin's pages, or ends it where life is not above 0. It is sent over https only where
// the browser came that way: a forged X-Forwarded-Proto hurts nobody but its sender.
func setCookie(w http.ResponseWriter, r *http.Request, name, value string, life time.Duration) {
	seconds := int(life / time.Second)
	if seconds <= 0 {
		seconds = -1
	}
	http.SetCookie(w, &http.Cookie{
		Name: name, Value: value, Path: "/admin", MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https"),
	})
}

func encode(b []byte) string          { return base64.RawURLEncoding.EncodeToString(b) }
func decode(s string) ([]byte, error) { return base64.RawURLEncoding.Strict().DecodeString(s) }

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+len(sep):], true
}
