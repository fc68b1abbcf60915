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
		body = a.element(body, out, a.decide(ctx, &s.calls[i]))
	}
	body = append(body, ']', '\n')
	s.out = body
	return a.send(w, s.out)
}

func (a *API) element(body []byte, out enforcer.Answers, v verdict) []byte {
	status, member := http.StatusOK, `,"decision":`
	var text []byte
	if v.err != nil {
		status, text = out.ErrorProblem(v.err)
		a.note(status, v.err)
	} else if d := v.refusal(); d != nil {
		status, text = out.Status(*d), out.Problem(*d)
	}
	if text != nil {
		member = `,"problem":`
	}
	body = append(body, `{"status":`...)
	body = strconv.AppendInt(body, int64(status), 10)
	body = append(body, member...)
	if text != nil {
		body = append(body, text...)
	} else {
		body = v.quota.AppendJSON(body)
	}
	return append(body, '}')
}
