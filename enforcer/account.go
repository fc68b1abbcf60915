package enforcer

import (
	"sync"
	"sync/atomic"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"github.com/weirhq/weir/usage"
)

// account is what this node knows of one account. Records are never replaced while the account is known.
type account struct {
	met   [inRecord]atomic.Int32 // features by their index, from 1; 0: none. Set once, after its slot
	first [inRecord]slot         // of these features, in one piece with the record: a call reads one line of it
	more  atomic.Pointer[slots]
	name  string
	known atomic.Pointer[standing] // nil: never loaded

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

// inRecord is how many features an account's record has room for, inPiece how many each piece for further ones.
const (
	inRecord = 2
	inPiece  = 6
)

// recordSize is what a record may take: two cache lines.
const recordSize = 128

const _ = uint(recordSize - unsafe.Sizeof(account{}))

// slots are further features of an account, in one piece like those of its record.
type slots struct {
	met  [inPiece]atomic.Int32
	next atomic.Pointer[slots]
	of   [inPiece]slot
}

// standing is an account's plan, and when its running period ends. Accounts with the same one share it.
type standing struct {
	plan   string
	until  int64 // business time; 0: the account is to be loaded again
	shadow bool  // of the account or its plan: nothing is refused
}

// until is the business time at which the running period ends; 0: the account is to be loaded.
func (a *account) until() int64 {
	if k := a.known.Load(); k != nil {
		return k.until
	}
	return 0
}

// outdate makes the next call load the account. The plan that is known stays.
func (e *Enforcer) outdate(a *account) {
	if k := a.known.Load(); k != nil {
		a.known.Store(e.terms.standing(standing{plan: k.plan, shadow: k.shadow}))
	}
}

// slot is one feature of an account. Meters hold it: it outlives periods.
type slot struct {
	cur     atomic.Pointer[counter]
	account *account

	upcoming upcoming // the next period's key; guarded by account.mu
}

// upcoming is what is kept of a loaded key until its period begins. The zero value is none.
type upcoming struct {
	key  int64 // 0: this node has counted under it, or holds a lease of it: it is loaded again when its period begins
	view *view
}

// starts and ends are unix nanoseconds of business time.
func (u upcoming) starts() int64 { return u.view.terms.StartsAt.UnixNano() }
func (u upcoming) ends() int64   { return u.view.terms.ResetsAt.UnixNano() }

// lease is what the database has stored of a key for this node.
type lease struct {
	own, ver, lim int64
	tight         bool
}

func leaseOf(k *usage.Key) lease { return lease{k.Own, k.Ver, k.Lim, k.Tight} }

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
	if i := s.account.featureOf(s); i > 0 {
		return e.features.Load().names[i-1]
	}
	return ""
}

// featureOf is a slot's feature by its index, from 1; 0: the account has no such slot.
func (a *account) featureOf(s *slot) int32 {
	for j := range a.first {
		if s == &a.first[j] {
			return a.met[j].Load()
		}
	}
	for more := a.more.Load(); more != nil; more = more.next.Load() {
		for j := range more.of {
			if s == &more.of[j] {
				return more.met[j].Load()
			}
		}
	}
	return 0
}

// at returns the account's slot of a feature, or nil where it was not met yet.
func (a *account) at(i int) *slot {
	feature := int32(i + 1)
	if feature <= 0 {
		return nil
	}
	for j := range a.first {
		if a.met[j].Load() == feature {
			return &a.first[j]
		}
	}
	for more := a.more.Load(); more != nil; more = more.next.Load() {
		for j := range more.met {
			if more.met[j].Load() == feature {
				return &more.of[j]
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
	if s := a.give(a.met[:], a.first[:], i); s != nil {
		return s
	}
	last := &a.more
	for more := last.Load(); more != nil; more = last.Load() {
		if s := a.give(more.met[:], more.of[:], i); s != nil {
			return s
		}
		last = &more.next
	}
	more := &slots{}
	s := a.give(more.met[:], more.of[:], i)
	last.Store(more)
	return s
}

// give makes a free slot the feature's, or returns nil where there is none.
func (a *account) give(met []atomic.Int32, of []slot, i int) *slot {
	for j := range of {
		if met[j].Load() == 0 {
			of[j].account = a
			met[j].Store(int32(i + 1))
			return &of[j]
		}
	}
	return nil
}

// each calls f for every slot.
func (a *account) each(f func(*slot)) {
	for j := range a.first {
		if a.met[j].Load() > 0 {
			f(&a.first[j])
		}
	}
	for more := a.more.Load(); more != nil; more = more.next.Load() {
		for j := range more.of {
			if more.met[j].Load() > 0 {
				f(&more.of[j])
			}
		}
	}
}

func validAccount(name string) bool {
	return usage.CheckAccount(name) == nil
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
