package admin

import (
	"crypto/sha256"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirhq/weir/internal/edge/problem"
)

const (
	attemptsEach = 6 * time.Second     // wrong tokens from one address, on average
	attemptsOnce = 10                  // at once
	strangerEach = time.Second         // wrong tokens from all addresses that are not known, on average
	strangerOnce = 100                 // at once
	hostEach     = time.Second / 10    // wrong tokens on the host's routes from one address that is known, on average
	hostOnce     = 1000                // at once
	knownLife    = 30 * 24 * time.Hour // for how long an address that showed the right token is known
	maxAddresses = 1000                // that are remembered of each kind; beyond that the others share one allowance
	maxWrong     = 1000                // wrong tokens that are remembered
	maxForwards  = 20                  // proxies on the way of a request
)

// attempts bounds how often wrong tokens may be shown: from one address (IPv6: one network), and from all strangers
// together, so that many addresses get no further than a few. An address that showed the right token lately is no
// stranger: whatever strangers do, its tokens are looked at. A wrong token that is shown again teaches nobody anything and
// counts for nothing: a program that was forgotten when the token changed shuts nobody out.
type attempts struct {
	wall func() time.Time
	fits func(token string) bool

	mu        sync.Mutex // guards what follows
	all       map[string]*rate.Limiter
	strangers *rate.Limiter
	known     map[string]acquaintance
	wrong     map[[sha256.Size]byte]struct{} // digests of tokens that were looked at
}

// acquaintance is an address that showed the right token.
type acquaintance struct {
	at   time.Time     // last
	host *rate.Limiter // its wrong tokens on the host's routes
}

// verdict is what became of a token.
type verdict int

const (
	unseen   verdict = iota // too many wrong ones came before
	wrong                   // and counted
	wrongYet                // as it was before
	right
)

func newAttempts(wall func() time.Time, fits func(string) bool) *attempts {
	return &attempts{
		wall: wall, fits: fits, all: map[string]*rate.Limiter{}, known: map[string]acquaintance{}, wrong: map[[sha256.Size]byte]struct{}{},
		strangers: rate.NewLimiter(rate.Every(strangerEach), strangerOnce),
	}
}

// look looks at a token that was shown from an address, unless too many wrong ones came before. It is one step, so that
// many at the same time are no more. On the host's routes a known address has a larger allowance of its own, and the right
// token passes from it whatever came before: no flood keeps a host from settling. What that leaves to guess for who shares
// the address is a random token.
func (t *attempts) look(from, token string, host bool) verdict {
	digest := sha256.Sum256([]byte(token))
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, again := t.wrong[digest]; again {
		return wrongYet
	}
	now := t.wall()
	friend, known := t.known[from]
	known = known && now.Sub(friend.at) < knownLife
	own := friend.host
	if !known || !host {
		own = t.of(from, now)
	}
	if known && host && t.fits(token) {
		t.remember(from, now)
		return right
	}
	if own.TokensAt(now) < 1 || !known && t.strangers.TokensAt(now) < 1 {
		return unseen
	}
	if t.fits(token) {
		t.remember(from, now)
		return right
	}
	own.AllowN(now, 1)
	if !known {
		t.strangers.AllowN(now, 1)
	}
	if len(t.wrong) >= maxWrong {
		for old := range t.wrong {
			delete(t.wrong, old)
			break
		}
	}
	t.wrong[digest] = struct{}{}
	return wrong
}

// of is the allowance of an address. Those that are whole again are forgotten when there are too many.
func (t *attempts) of(from string, now time.Time) *rate.Limiter {
	l, ok := t.all[from]
	if ok {
		return l
	}
	if len(t.all) >= maxAddresses {
		for k, v := range t.all {
			if k != "" && v.TokensAt(now) >= attemptsOnce {
				delete(t.all, k)
			}
		}
		if len(t.all) >= maxAddresses {
			from = ""
			if l, ok = t.all[from]; ok {
				return l
			}
		}
	}
	l = rate.NewLimiter(rate.Every(attemptsEach), attemptsOnce)
	t.all[from] = l
	return l
}

// remember notes that the right token came from an address. The one that was there longest ago gives way.
func (t *attempts) remember(from string, now time.Time) {
	friend, ok := t.known[from]
	if !ok && len(t.known) >= maxAddresses {
		oldest := from
		for k, other := range t.known {
			if oldest == from || other.at.Before(t.known[oldest].at) {
				oldest = k
			}
		}
		delete(t.known, oldest)
	}
	if !ok {
		friend.host = rate.NewLimiter(rate.Every(hostEach), hostOnce)
	}
	friend.at = now
	t.known[from] = friend
}

// client is where a request comes from: the other end of its connection, or, where that is a trusted proxy, whom the
// proxies say they forward for. Only what a trusted one has written counts: the last entries of X-Forwarded-For, up to
// the first that is no trusted proxy. IPv6 addresses are one per network of 64 bits.
func (g *guard) client(r *http.Request) string {
	from := r.RemoteAddr
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for n := 0; n < maxForwards && len(hops) > 0 && g.trusted(from); n++ {
		hop := strings.TrimSpace(hops[len(hops)-1])
		addr, err := netip.ParseAddr(hop)
		if with, errPort := netip.ParseAddrPort(hop); errPort == nil {
			addr, err = with.Addr(), nil
		}
		if err != nil {
			break // nobody, or not an address
		}
		hops, from = hops[:len(hops)-1], netip.AddrPortFrom(addr, 0).String()
	}
	return network(from)
}

func network(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return "unix"
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if addr = addr.Unmap().WithZone(""); addr.Is6() {
		p, _ := addr.Prefix(64)
		return p.String()
	}
	return addr.String()
}

// Bounded bounds wrong tokens on another route that takes the same token, together with the admin's. An address that
// showed the right one lately is not shut out of it: many wrong ones may be a neighbour's.
func (a *Admin) Bounded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.mayShow(w, r, true) {
			h.ServeHTTP(w, r)
		}
	})
}

// mayShow reports whether the token that a request shows, if any, is to be looked at, and answers it if not.
func (a *Admin) mayShow(w http.ResponseWriter, r *http.Request, host bool) bool {
	if shown, shows := bearer(r); shows && a.attempts.look(a.guard.client(r), shown, host) == unseen {
		a.tooMany(w, r)
		return false
	}
	return true
}

func (a *Admin) tooMany(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Retry-After", strconv.Itoa(int(attemptsEach/time.Second)))
	text := "Too many wrong tokens came from this address, or from everywhere. Wait a minute and try again."
	if r.Header.Get("X-Forwarded-For") != "" && !a.guard.trusted(r.RemoteAddr) {
		text += " All that a proxy passes on counts as one address, unless the worker trusts it: see --admin-trusted-proxies."
	}
	if !wantsPage(r) {
		problem.New(http.StatusTooManyRequests, "rate_limited", "Too many attempts", text).Write(w)
		return
	}
	a.fault(w, r, person{}, http.StatusTooManyRequests, "Too many attempts", text)
}
