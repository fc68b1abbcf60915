package stripesim

import (
	"crypto/sha256"
	"net/http"
	"time"
)

// replyLife is how long an answer is kept for its Idempotency-Key. Stripe says
// "at least 24 hours"; the simulator keeps no promise beyond that.
const replyLife = 24 * time.Hour

// kept is what is known under one idempotency key.
type kept struct {
	key   string
	print [sha256.Size]byte
	at    time.Time
	out   *reply // nil while the first call runs
}

// replies holds the answers of the last 24 hours, oldest first.
type replies struct {
	byKey map[string]*kept
	queue []*kept
	most  int
}

func newReplies(most int) replies { return replies{byKey: make(map[string]*kept), most: most} }

// expire forgets what is older than 24 hours, and the oldest beyond the bound.
func (r *replies) expire(now time.Time) {
	drop := 0
	for drop < len(r.queue) && (len(r.queue)-drop > r.most || !now.Before(r.queue[drop].at.Add(replyLife))) {
		old := r.queue[drop]
		if r.byKey[old.key] == old {
			delete(r.byKey, old.key)
		}
		r.queue[drop] = nil
		drop++
	}
	r.queue = r.queue[drop:]
}

// claim takes an idempotency key for a call. It returns the kept answer of an
// earlier equal call, or a refusal, or neither when the call may run.
func (s *Server) claim(c *call, print string) (*reply, *apiError) {
	sum := sha256.Sum256([]byte(print))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies.expire(s.now())
	known, ok := s.replies.byKey[c.key]
	switch {
	case !ok:
		k := &kept{key: c.key, print: sum, at: s.now()}
		s.replies.byKey[c.key] = k
		s.replies.queue = append(s.replies.queue, k)
		c.claimed = k
		return nil, nil
	case known.print != sum:
		return nil, (&apiError{
			status: http.StatusBadRequest, typ: typeIdempotency,
			message: "Keys for idempotent requests can only be used with the same parameters they were first used with. " +
				"Try using a key other than '" + c.key + "' if you meant to execute a different request.",
		}).beforeExecution()
	case known.out == nil:
		return nil, (&apiError{
			status: http.StatusConflict, typ: typeIdempotency, code: "idempotency_key_in_use",
			message: "There is currently another in-progress request using this Idempotency Key (" + c.key + "). Please try again later.",
		}).beforeExecution()
	}
	out := *known.out
	out.replayed = true
	return &out, nil
}

// settle keeps the answer of an executed call, or frees the key of a call that
// was refused before execution.
func (s *Server) settle(c *call, out reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.claimed.out = &out
	if !out.keep && s.replies.byKey[c.key] == c.claimed {
		delete(s.replies.byKey, c.key)
	}
}
