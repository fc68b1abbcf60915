package enforcer

import "sync"

// registry finds counters by key. No call of a host goes through it.
type registry struct {
	mu    sync.RWMutex
	known map[int64]*counter
}

func (r *registry) load(key int64) (*counter, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	c, ok := r.known[key]
	return c, ok
}

func (r *registry) store(c *counter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = make(map[int64]*counter)
	}
	r.known[c.key()] = c
}

// remove forgets a counter, unless another one has taken its place.
func (r *registry) remove(c *counter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if key := c.key(); r.known[key] == c {
		delete(r.known, key)
	}
}

func (r *registry) size() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.known)
}

// each calls f for the counters that are known at the moment. f may use the registry.
func (r *registry) each(f func(*counter)) {
	r.mu.RLock()
	all := make([]*counter, 0, len(r.known))
	for _, c := range r.known {
		all = append(all, c)
	}
	r.mu.RUnlock()
	for _, c := range all {
		f(c)
	}
}
