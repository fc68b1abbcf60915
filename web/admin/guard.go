package admin

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// person is who was admitted.
type person struct {
	Name string // the actor of what is done
	via  way
	mark string // what the keys of forms are bound to
}

// CanLeave reports whether there is a session to end.
func (p person) CanLeave() bool { return p.via == bySession }

// way is how somebody was admitted.
type way int

const (
	byToken   way = iota + 1 // a program that shows the bearer token
	bySession                // a browser, by the cookie of a login
	byProxy                  // a trusted proxy says so
)

const (
	tokenActor   = "api" // programs have no name
	maxNameRunes = 64
)

// guard decides who is admitted. It never changes.
type guard struct {
	digest  [sha256.Size]byte
	set     bool // a token is set
	key     []byte
	header  string
	proxies []netip.Prefix
	unix    bool
	wall    func() time.Time
}

func newGuard(cfg *Config) (*guard, error) {
	g := &guard{digest: sha256.Sum256([]byte(cfg.Token)), set: cfg.Token != "", header: http.CanonicalHeaderKey(cfg.UserHeader), wall: cfg.WallClock}
	if cfg.UserHeader != "" && len(cfg.TrustedProxies) == 0 {
		return nil, errors.New("the proxy's user header needs the trusted proxies: anybody else could send the header too")
	}
	for _, s := range cfg.TrustedProxies {
		if s == "unix" {
			g.unix = true
			continue
		}
		p, err := netip.ParsePrefix(s)
		if one, errOne := netip.ParseAddr(s); errOne == nil {
			p, err = one.Prefix(one.BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("trusted proxy %q: use a network such as 10.0.0.0/8, an address, or the word unix", s)
		}
		g.proxies = append(g.proxies, p.Masked())
	}
	material := []byte(cfg.Token)
	if !g.set {
		if material = []byte(cfg.Secret); cfg.Secret == "" {
			material = make([]byte, sha256.Size)
			_, _ = rand.Read(material) // it never fails
		}
	}
	var err error
	g.key, err = hkdf.Key(sha256.New, material, nil, "weir admin", sha256.Size)
	return g, err
}

// off reports whether nobody can be admitted.
func (g *guard) off() bool { return !g.set && g.header == "" }

// fits reports whether this is the token. Digests are compared, so that the time taken tells nothing of it.
func (g *guard) fits(shown string) bool {
	d := sha256.Sum256([]byte(shown))
	return subtle.ConstantTimeCompare(d[:], g.digest[:]) == 1 && g.set
}

// bearer is the token that a request shows, and whether it shows one at all.
func bearer(r *http.Request) (string, bool) {
	scheme, shown, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	return strings.TrimSpace(shown), ok && strings.EqualFold(scheme, "Bearer")
}

// who is the person behind a request, if it is one whom the guard admits.
func (g *guard) who(r *http.Request) (person, bool) {
	if shown, ok := bearer(r); ok {
		return person{Name: tokenActor, via: byToken}, g.fits(shown)
	}
	if g.header != "" && g.trusted(r.RemoteAddr) {
		if all := r.Header.Values(g.header); len(all) == 1 {
			if name, ok := cleanName(all[0]); ok {
				return person{Name: name, via: byProxy, mark: "proxy\x00" + name}, true
			}
		}
	}
	if c, err := r.Cookie(sessionCookie); err == nil && g.set {
		if name, ok := g.openSession(c.Value); ok {
			return person{Name: name, via: bySession, mark: "session\x00" + c.Value}, true
		}
	}
	return person{}, false
}

// trusted reports whether a connection comes from a proxy that may say who is signed in.
func (g *guard) trusted(remote string) bool {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return g.unix && (remote == "" || remote == "@") // a Unix socket's other end
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	addr = addr.Unmap().WithZone("")
	for _, p := range g.proxies {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// cleanName is a person's name as it is stored: 1 to 64 characters, none of them invisible.
func cleanName(s string) (string, bool) {
	s = strings.TrimSpace(s)
	if s == "" || !utf8.ValidString(s) || utf8.RuneCountInString(s) > maxNameRunes || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "", false
	}
	return s, true
}

// seal authenticates a value for one use.
func (g *guard) seal(use, value string) []byte {
	m := hmac.New(sha256.New, g.key)
	m.Write([]byte(use))
	m.Write([]byte{0})
	m.Write([]byte(value))
	return m.Sum(nil)
}
