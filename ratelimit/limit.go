package ratelimit

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Algorithm names how units are counted; the values are those of the plan file.
type Algorithm string

// The algorithms. The package's documentation says what each one promises.
const (
	FixedWindow   Algorithm = "fixed_window"
	SlidingWindow Algorithm = "sliding_window"
	TokenBucket   Algorithm = "token_bucket"
)

const (
	maxUnits  = 1_000_000_000 // fits the 30 bits that a word has for a count
	minWindow = time.Millisecond
	maxWindow = 24 * time.Hour
)

// Limit is a rate as a plan states it, for the whole cluster.
type Limit struct {
	Units     int64         // per Window, 0 to 1,000,000,000; 0 admits nothing
	Window    time.Duration // 1 ms to 24 h
	Algorithm Algorithm     // "" is FixedWindow
	Burst     int64         // TokenBucket only: the bucket's size, 1 to 1,000,000,000; 0 is Units
	PerNode   bool          // every node applies the whole limit, whatever the number of nodes
}

// Rule is a Limit made ready for calls. It may be used by any number of goroutines, Limiters and keys at once. Calls
// under one key should agree on the rule: a change rebuilds the key's state. Two rules of equal limits are the same.
type Rule struct {
	limit  Limit
	shared atomic.Pointer[shape] // for the number of nodes seen last
}

// NewRule checks the limit. Its error names every value that is out of range.
func NewRule(limit Limit) (*Rule, error) {
	var wrong []error
	if limit.Units < 0 || limit.Units > maxUnits {
		wrong = append(wrong, fmt.Errorf("rate limit of %d units: use 0 to %d", limit.Units, maxUnits))
	}
	if limit.Window < minWindow || limit.Window > maxWindow {
		wrong = append(wrong, fmt.Errorf("rate window of %s: use %s to %s", limit.Window, minWindow, maxWindow))
	}
	switch limit.Algorithm {
	case "":
		limit.Algorithm = FixedWindow
	case FixedWindow, SlidingWindow, TokenBucket:
	default:
		wrong = append(wrong, fmt.Errorf("rate algorithm %q: use %s, %s or %s",
			limit.Algorithm, FixedWindow, SlidingWindow, TokenBucket))
	}
	switch {
	case limit.Algorithm == TokenBucket && limit.Burst == 0:
		limit.Burst = limit.Units
	case limit.Burst < 0 || limit.Burst > maxUnits:
		wrong = append(wrong, fmt.Errorf("rate burst of %d units: use 1 to %d", limit.Burst, maxUnits))
	case limit.Algorithm != TokenBucket && limit.Burst != 0:
		wrong = append(wrong, fmt.Errorf("rate burst of %d units: only %s has one", limit.Burst, TokenBucket))
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	rule := &Rule{limit: limit}
	rule.shared.Store(newShape(limit, 1))
	return rule, nil
}

// share returns the rule as one of so many nodes applies it.
func (r *Rule) share(nodes int64) *shape {
	if r.limit.PerNode {
		nodes = 1
	}
	sh := r.shared.Load()
	if sh.nodes != nodes {
		sh = newShape(r.limit, nodes)
		r.shared.Store(sh)
	}
	return sh
}
