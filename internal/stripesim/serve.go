package stripesim

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
)

// reply is an answer ready to be written, and to be kept under an idempotency
// key.
type reply struct {
	status   int
	header   map[string]string
	body     []byte
	request  string // id of the request that was executed
	replayed bool
	// keep is false for refusals that came before execution.
	keep bool
}

func (s *Server) endpoint(pattern string, h handler) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, pattern, h) })
}

// serve is the way of every request: faults, authentication, rate limits,
// idempotency, execution, and again faults on the answer.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, pattern string, h handler) {
	c, fault := s.open(r, pattern)
	s.begin(c)
	plan := s.faults.plan(*c.record)
	if fault == nil {
		fault = s.admit(c, plan)
	}
	if fault != nil {
		s.answer(w, c, failure(fault, c.id), plan)
		return
	}
	defer s.limits.leave(c)
	if r.Method != http.MethodPost || c.key == "" {
		s.answer(w, c, s.run(c, h, plan), plan)
		return
	}
	print := c.fingerprint()
	kept, refusal := s.claim(c, print)
	if refusal != nil {
		s.answer(w, c, failure(refusal, c.id), plan)
		return
	}
	if kept != nil {
		s.answer(w, c, *kept, plan)
		return
	}
	out := s.run(c, h, plan)
	s.settle(c, out)
	s.answer(w, c, out, plan)
}

// admit refuses a call before anything of it is executed or kept.
func (s *Server) admit(c *call, plan plan) *apiError {
	if plan.refusal != nil {
		return plan.refusal
	}
	if c.apiKey == "" || c.apiKey != s.APIKey() {
		return unauthorized(c.apiKey)
	}
	return s.limits.enter(c)
}

// run executes a call, between the stalls that faults put before and after.
func (s *Server) run(c *call, h handler, plan plan) reply {
	plan.waitBefore(s.closed)
	var out reply
	if plan.failure != nil {
		out = failure(plan.failure, c.id)
	} else {
		out = s.execute(c, h)
		if plan.failureAfter != nil {
			out = failure(plan.failureAfter, c.id)
		}
	}
	plan.waitAfter(s.closed)
	return out
}

func (s *Server) execute(c *call, h handler) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.now = s.now()
	s.caller = c
	defer func() { s.caller = nil }()
	expand := c.in.texts("expand")
	result, err := h(c)
	if err == nil && len(expand) > 0 {
		err = s.expand(result, expand, c.version)
	}
	if err != nil {
		fault := new(apiError)
		if !errors.As(err, &fault) {
			s.log.Error("the simulator failed on a call", "method", c.request.Method, "path", c.request.URL.Path, "error", err)
			fault = &apiError{status: http.StatusInternalServerError, typ: typeAPI, message: "The simulator failed: " + err.Error()}
		}
		return failure(fault, c.id)
	}
	body, err := encode(result)
	if err != nil {
		s.log.Error("the simulator made an answer that is no JSON", "path", c.request.URL.Path, "error", err)
		return failure(&apiError{status: http.StatusInternalServerError, typ: typeAPI, message: err.Error()}, c.id)
	}
	return reply{status: http.StatusOK, body: body, request: c.id, keep: true}
}

func failure(e *apiError, requestID string) reply {
	body, err := encode(e.body(requestID))
	if err != nil {
		body = []byte(`{"error":{"type":"api_error","message":"unprintable error"}}`)
	}
	return reply{status: e.status, header: e.header, body: body, request: requestID, keep: !e.unexecuted}
}

// answer writes out, or as much of it as the faults leave.
func (s *Server) answer(w http.ResponseWriter, c *call, out reply, plan plan) {
	s.end(c, out)
	if plan.drop {
		panic(http.ErrAbortHandler)
	}
	h := w.Header()
	s.mu.Lock()
	date := s.now().Add(s.skew)
	s.mu.Unlock()
	h.Set("Date", date.Format(http.TimeFormat))
	h.Set("Content-Type", "application/json")
	h.Set("Request-Id", c.id)
	h.Set("Stripe-Version", string(c.version))
	if c.key != "" {
		h.Set("Idempotency-Key", c.key)
		h.Set("Original-Request", out.request)
	}
	if out.replayed {
		h.Set("Idempotent-Replayed", "true")
	}
	for name, value := range out.header {
		h.Set(name, value)
	}
	for name, value := range plan.header {
		h.Set(name, value)
	}
	body := out.body
	if plan.truncate {
		body = body[:len(body)/2]
	}
	length := len(body)
	if plan.cut {
		length = len(out.body)
		body = out.body[:length/2]
	}
	h.Set("Content-Length", strconv.Itoa(length))
	w.WriteHeader(out.status)
	if _, err := w.Write(body); err != nil {
		s.log.Debug("the caller left before its answer", "path", c.request.URL.Path, "error", err)
	}
	if plan.cut {
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		panic(http.ErrAbortHandler)
	}
}

// begin logs a call on arrival, so that stalled ones are visible.
func (s *Server) begin(c *call) {
	c.record = &Call{
		Method: c.request.Method, Path: c.request.URL.Path, Query: c.request.URL.RawQuery, Pattern: c.pattern,
		IdempotencyKey: c.key, RequestID: c.id, Version: string(c.version), At: c.now, Params: c.raw[:min(len(c.raw), mostLoggedParams)],
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls.add(c.record)
}

func (s *Server) end(c *call, out reply) {
	s.mu.Lock()
	c.record.Status = out.status
	c.record.Replayed = out.replayed
	s.mu.Unlock()
	s.log.Debug("stripe simulator answered", slog.Int("status", out.status), slog.String("method", c.request.Method),
		slog.String("path", c.request.URL.Path), slog.String("request", c.id), slog.Bool("replayed", out.replayed))
}
