package api

import (
	"context"
	"net/http"
	"strconv"

	"github.com/weirhq/weir/enforcer"
)

// batch answers a list of calls, each on its own and in order, as a list of the same length: {"status": 200,
// "decision": …} or {"status": …, "problem": …}, with what the call alone would have been answered.
func (a *API) batch(ctx context.Context, w http.ResponseWriter, s *scratch) int {
	ctx, cancel := context.WithTimeout(ctx, requestTime) // each call has its own bound, and they add up
	defer cancel()
	out := a.cfg.Enforcer.Answers(a.cfg.Draft)
	body := s.out[:0]
	body = append(body, '[')
	for i := range s.calls {
		if i > 0 {
			body = append(body, ',', '\n')
		}
		var v verdict
		if a.decide(ctx, &s.calls[i], &v); v.err == nil && v.refusal(true) == nil {
			body = append(s.encoder.append(append(body, `{"status":200,"decision":`...), &v.quota), '}')
			continue
		}
		body = a.failed(body, out, &v)
	}
	body = append(body, ']', '\n')
	s.out = body
	return a.send(w, s.out)
}

// failed appends the element of a call that is refused, or can't be decided.
func (a *API) failed(body []byte, out enforcer.Answers, v *verdict) []byte {
	var status int
	var text []byte
	if v.err != nil {
		status, text = out.ErrorProblem(v.err)
		a.note(status, v.err)
	} else {
		d := v.refusal(true)
		status, text = out.Status(*d), out.Problem(*d)
	}
	body = append(body, `{"status":`...)
	body = strconv.AppendInt(body, int64(status), 10)
	body = append(body, `,"problem":`...)
	body = append(body, text...)
	return append(body, '}')
}
