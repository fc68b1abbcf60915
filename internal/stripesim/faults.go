package stripesim

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"sync/atomic"
)

// Match selects the API calls that a fault hits.
type Match struct {
	// Method is "" for any.
	Method string
	// Path is a regular expression for the whole URL path; "" is any.
	Path string
	// When, if set, must also hold. It runs without the server's lock.
	When func(Call) bool
	// Skip lets that many matching calls pass first.
	Skip int
	// Count ends the fault after that many hits; 0 never does.
	Count int
}

// Faults is the set of faults in force. It is safe for concurrent use.
type Faults struct {
	calls   rules[Call, Effect]
	posts   rules[Delivery, WebhookEffect]
	meters  rules[MeterEvent, string]
	shuffle atomic.Bool
}

// rules are the faults on one kind of thing.
type rules[T, E any] struct {
	mu   sync.Mutex
	list []rule[T, E]
}

type rule[T, E any] struct {
	*Injection
	matches func(T) bool
	effect  E
}

func (r *rules[T, E]) add(matches func(T) bool, effect E, skip, count int) *Injection {
	i := &Injection{skip: skip, count: count, released: make(chan struct{}), changed: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, rule[T, E]{Injection: i, matches: matches, effect: effect})
	return i
}

// strike counts v against every rule and returns those that hit it.
func (r *rules[T, E]) strike(v T) []rule[T, E] {
	r.mu.Lock()
	list := r.list
	r.mu.Unlock()
	var out []rule[T, E]
	for _, each := range list {
		if each.matches(v) && each.hit() {
			out = append(out, each)
		}
	}
	return out
}

func (r *rules[T, E]) clear() {
	r.mu.Lock()
	list := r.list
	r.list = nil
	r.mu.Unlock()
	for _, each := range list {
		each.Remove()
		each.Release()
	}
}

// Inject puts a fault on API calls into force. Several may hit one call. It
// panics when m.Path is no regular expression. Effects that cut the connection
// want a real listener behind the handler.
func (f *Faults) Inject(m Match, e Effect) *Injection {
	path := regexp.MustCompile("^(?:" + m.Path + ")$")
	matches := func(c Call) bool {
		return (m.Method == "" || m.Method == c.Method) && (m.Path == "" || path.MatchString(c.Path)) && (m.When == nil || m.When(c))
	}
	return f.calls.add(matches, e, m.Skip, m.Count)
}

// Clear takes every fault out of force and releases what they hold.
func (f *Faults) Clear() {
	f.calls.clear()
	f.posts.clear()
	f.meters.clear()
	f.shuffle.Store(false)
}

// plan collects what the faults do to a call.
func (f *Faults) plan(c Call) plan {
	var p plan
	for _, r := range f.calls.strike(c) {
		r.effect.apply(&p, r.Injection)
	}
	return p
}

// Injection is one fault in force.
type Injection struct {
	skip, count int
	released    chan struct{}
	release     sync.Once

	mu         sync.Mutex // guards all below
	seen, hits int
	removed    bool
	changed    chan struct{}
}

func (i *Injection) hit() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.removed || i.count > 0 && i.hits == i.count {
		return false
	}
	if i.seen++; i.seen <= i.skip {
		return false
	}
	i.hits++
	close(i.changed)
	i.changed = make(chan struct{})
	return true
}

// Hits is how often the fault has struck.
func (i *Injection) Hits() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.hits
}

// Wait returns when the fault has struck n times, or with the error of ctx.
func (i *Injection) Wait(ctx context.Context, n int) error {
	for {
		i.mu.Lock()
		hits, changed := i.hits, i.changed
		i.mu.Unlock()
		if hits >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for a fault: hit %d of %d times: %w", hits, n, ctx.Err())
		}
	}
}

// Remove takes the fault out of force; what it holds stays held.
func (i *Injection) Remove() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.removed = true
}

// Release lets go of everything that the fault holds, and of what it would
// hold later.
func (i *Injection) Release() { i.release.Do(func() { close(i.released) }) }

func (i *Injection) wasReleased() bool {
	select {
	case <-i.released:
		return true
	default:
		return false
	}
}
