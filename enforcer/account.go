package enforcer

import (
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/weirhq/weir/usage"
)

// account is what this node knows of one account. Records are never replaced while the account is known.
type account struct {
	name  string
	slots atomic.Pointer[[]*slot] // by feature index; grows only
	plan  atomic.Pointer[string]
	until atomic.Int64 // business time at which the running period ends; 0: not loaded

	mu      sync.Mutex
	id      int64 // 0: not loaded yet
	change  int64 // the change number that it was read under
	loading *loading
}

// loading is a first contact in flight that callers wait for.
type loading struct {
	account *account
	feature string // that the first caller asked for; empty: nobody waits, the next period is wanted

	done chan struct{}
	err  error
}

// slot is one feature of an account. Meters hold it: it outlives periods.
type slot struct {
	account *account
	feature string
	cur     atomic.Pointer[counter]

	// guarded by account.mu
	upcoming *keyLease // the next period's key
}

// keyLease is what is kept of a loaded key until its counter is made: a row has many times its size, and pins the
// rows that were read with it.
type keyLease struct {
	key, own, ver, lim int64
	starts, ends       int64 // unix nanoseconds
	tight              bool
	view               *view
}

func (e *Enforcer) keep(k *usage.Key) *keyLease {
	return &keyLease{
		key: k.Key, own: k.Own, ver: k.Ver, lim: k.Lim, tight: k.Tight, starts: k.Starts.UnixNano(), ends: k.Ends.UnixNano(), view: e.viewOf(k),
	}
}

// features gives every feature of the catalog an index that never changes.
type features struct {
	names []string
}

func (f *features) index(name string) int {
	for i, n := range f.names {
		if n == name {
			return i
		}
	}
	return -1
}

func (f *features) with(names []string) *features {
	out := &features{names: append([]string(nil), f.names...)}
	for _, n := range names {
		if out.index(n) < 0 {
			out.names = append(out.names, n)
		}
	}
	return out
}

// setPlan notes the plan of the running period, in a string that pins no row.
func (a *account) setPlan(plan string) {
	if p := a.plan.Load(); p == nil || *p != plan {
		plan = strings.Clone(plan)
		a.plan.Store(&plan)
	}
}

// at returns the account's slot of a feature, or nil where it was not met yet.
func (a *account) at(i int) *slot {
	if all := a.slots.Load(); all != nil && uint(i) < uint(len(*all)) {
		return (*all)[i]
	}
	return nil
}

// slotAt returns the account's slot of a feature, made where it is missing.
func (a *account) slotAt(i int, feature string) *slot {
	if s := a.at(i); s != nil {
		return s
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.slotLocked(i, feature)
}

func (a *account) slotLocked(i int, feature string) *slot {
	var all []*slot
	if p := a.slots.Load(); p != nil {
		all = *p
	}
	if i < len(all) && all[i] != nil {
		return all[i]
	}
	grown := make([]*slot, max(i+1, len(all)))
	copy(grown, all)
	grown[i] = &slot{account: a, feature: feature}
	a.slots.Store(&grown)
	return grown[i]
}

func validAccount(name string) bool {
	return len(name) <= usage.MaxAccountBytes && validText(name)
}

// validText accepts text that no header, log line or page can be split by, without blanks at its ends.
func validText(s string) bool {
	if s == "" || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return false
		}
	}
	first, _ := utf8.DecodeRuneInString(s)
	last, _ := utf8.DecodeLastRuneInString(s)
	return !unicode.IsSpace(first) && !unicode.IsSpace(last)
}
