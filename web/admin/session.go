package admin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
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
	body := strconv.FormatInt(g.wall().Add(sessionLife).Unix(), 10) + "." + encode([]byte(name)) + "." + rand.Text()
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
	name, _, _ = strings.Cut(name, ".") // what follows tells sessions of one moment apart
	at, err := strconv.ParseInt(until, 10, 64)
	if err != nil || !g.wall().Before(time.Unix(at, 0)) {
		return "", false
	}
	b, err := decode(name)
	return string(b), err == nil
}

// end ends a session for every worker, and forgets those whose time is over.
func (a *Admin) end(ctx context.Context, who person) error {
	now := a.cfg.WallClock()
	_, err := a.cfg.DB.Exec(ctx, `WITH over AS (DELETE FROM weir.ended_sessions WHERE until < $2)
		INSERT INTO weir.ended_sessions (digest, until) VALUES ($1, $3) ON CONFLICT DO NOTHING`, digest(who), now, now.Add(sessionLife))
	if err != nil {
		return fmt.Errorf("end a session: %w", err)
	}
	return nil
}

// ended reports whether a person's session was ended.
func (a *Admin) ended(ctx context.Context, who person) (is bool, err error) {
	if who.via != bySession {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	err = a.cfg.DB.QueryRow(ctx, "SELECT EXISTS (SELECT FROM weir.ended_sessions WHERE digest = $1)", digest(who)).Scan(&is)
	if err != nil {
		return false, fmt.Errorf("look whether a session was ended: %w", err)
	}
	return is, nil
}

// digest is what is stored of a session: nobody who reads it can use it.
func digest(who person) []byte {
	d := sha256.Sum256([]byte(who.mark))
	return d[:]
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
