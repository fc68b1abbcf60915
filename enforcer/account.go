package enforcer

import (
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/weirhq/weir/usage"
)

// account is what this node knows of one account. Records are never replaced while the account is known.
type account struct {
	name  string
	first [2]slot // of the features that were met first, in one piece with the record: a call reads one line of it
	more  atomic.Pointer[[]*slot]
	plan  atomic.Pointer[string]
	until atomic.Int64 // business time at which the running period ends; 0: not loaded

	mu      sync.Mutex
	id      int64 // 0: not loaded yet
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
	cur     atomic.Pointer[counter]
	feature atomic.Int32 // its index, from 1; 0: not in use. Set once, last

	// guarded by account.mu
	upcoming *keyLease // the next period's key
}

// keyLease is what is kept of a loaded key until its counter is made: a row has many times its size, and pins the
// rows that were read with it.
type keyLease struct {
	key   int64
	view  *view
	lease *lease // nil: none, and nothing was counted
}

type lease struct {
	own, ver, lim int64
	tight         bool
}

func (e *Enforcer) keep(k *usage.Key) *keyLease {
	kept := &keyLease{key: k.Key, view: e.viewOf(k)}
	if l := (lease{k.Own, k.Ver, k.Lim, k.Tight}); l != (lease{}) {
		kept.lease = &l
	}
	return kept
}

// starts and ends are unix nanoseconds of business time.
func (k *keyLease) starts() int64 { return k.view.terms.StartsAt.UnixNano() }
func (k *keyLease) ends() int64   { return k.view.terms.ResetsAt.UnixNano() }

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

// featureOf names a slot's feature.
func (e *Enforcer) featureOf(s *slot) string {
	if i := s.feature.Load(); i > 0 {
		return e.features.Load().names[i-1]
	}
	return ""
}

// at returns the account's slot of a feature, or nil where it was not met yet.
func (a *account) at(i int) *slot {
	feature := int32(i + 1)
	for j := range a.first {
		if s := &a.first[j]; s.feature.Load() == feature && feature > 0 {
			return s
		}
	}
	if all := a.more.Load(); all != nil {
		for _, s := range *all {
			if s.feature.Load() == feature {
				return s
			}
		}
	}
	return nil
}

// slotAt returns the account's slot of a feature, made where it is missing.
func (a *account) slotAt(i int) *slot {
	if s := a.at(i); s != nil {
		return s
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.slotLocked(i)
}

func (a *account) slotLocked(i int) *slot {
	if s := a.at(i); s != nil {
		return s
	}
	for j := range a.first {
		if s := &a.first[j]; s.feature.Load() == 0 {
			s.account = a
			s.feature.Store(int32(i + 1))
			return s
		}
	}
	s := &slot{account: a}
	s.feature.Store(int32(i + 1))
	var all []*slot
	if p := a.more.Load(); p != nil {
		all = *p
	}
	grown := append(append([]*slot(nil), all...), s)
	a.more.Store(&grown)
	return s
}

// each calls f for every slot.
func (a *account) each(f func(*slot)) {
	for j := range a.first {
		if s := &a.first[j]; s.feature.Load() > 0 {
			f(s)
		}
	}
	if all := a.more.Load(); all != nil {
		for _, s := range *all {
			f(s)
		}
	}
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
