package stripesim

import "time"

// Call is one API request in the log.
type Call struct {
	Method, Path, Query string
	// Pattern is the route, such as "GET /v1/subscriptions/{id}".
	Pattern string
	// Params are the parameters as they came, URL-encoded, cut at 4 KiB.
	Params         string
	IdempotencyKey string
	RequestID      string
	Version        string
	At             time.Time
	// Status is 0 while the call is stalled or running.
	Status int
	// Replayed tells that the answer came from the idempotency layer.
	Replayed bool
}

const mostLoggedParams = 4096

// history is a bounded log: beyond most the oldest entries are forgotten.
type history[T any] struct {
	rows []T
	most int
}

func newHistory[T any](most int) history[T] { return history[T]{most: most} }

// add returns what it forgot; forgetting in blocks keeps it cheap.
func (h *history[T]) add(v T) (forgotten []T) {
	h.rows = append(h.rows, v)
	if over := len(h.rows) - h.most; over > h.most/4+16 {
		forgotten, h.rows = h.rows[:over], append([]T(nil), h.rows[over:]...)
	}
	return forgotten
}

// all is the newest most rows, oldest first.
func (h *history[T]) all() []T {
	if over := len(h.rows) - h.most; over > 0 {
		return h.rows[over:]
	}
	return h.rows
}

// Calls are the API requests seen so far, oldest first, at most
// Config.HistorySize.
func (s *Server) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Call, 0, len(s.calls.all()))
	for _, c := range s.calls.all() {
		out = append(out, *c)
	}
	return out
}
