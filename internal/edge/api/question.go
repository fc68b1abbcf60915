package api

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/internal/edge/wire"
)

// question is the query of /v1/auth.
type question struct {
	call          wire.Call // but for the account and the caller
	accountHeader string
	callerHeader  string
	nginx         bool
}

// questions remembers the queries that were asked. A proxy's configuration writes them, so that there are few; past
// maxQuestions others are read anew each time. Safe for concurrent use.
type questions struct {
	mu    sync.Mutex // serialises changes of known
	known atomic.Pointer[map[string]*question]
}

const maxQuestions = 256

func (qs *questions) of(query string) (*question, error) {
	if known := qs.known.Load(); known != nil {
		if q := (*known)[query]; q != nil {
			return q, nil
		}
	}
	q, err := readQuestion(query)
	if err == nil {
		qs.remember(query, q)
	}
	return q, err
}

// remember adds to a copy, which readers need not lock.
func (qs *questions) remember(query string, q *question) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	known := map[string]*question{}
	if was := qs.known.Load(); was != nil {
		if len(*was) >= maxQuestions {
			return
		}
		maps.Copy(known, *was)
	}
	known[strings.Clone(query)] = q
	qs.known.Store(&known)
}

func readQuestion(query string) (*question, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("the query of /v1/auth can't be read: %.200q: escape it", query)
	}
	q := &question{call: wire.Call{Units: 1, Rate: true}, accountHeader: accountHeader}
	for name, all := range values {
		if len(all) > 1 {
			return nil, fmt.Errorf("the query of /v1/auth has %.40q %d times: give each once", name, len(all))
		}
		if err := q.set(name, all[0]); err != nil {
			return nil, err
		}
	}
	if q.call.Feature == "" {
		return nil, errors.New("the query of /v1/auth needs a feature: /v1/auth?feature=events")
	}
	return q, nil
}

func (q *question) set(name, value string) (err error) {
	switch name {
	case "feature":
		q.call.Feature = value
	case "account_header":
		q.accountHeader = http.CanonicalHeaderKey(value)
	case "caller_header":
		q.callerHeader = value
	case "units":
		if q.call.Units, err = strconv.ParseInt(value, 10, 64); err != nil || q.call.Units < 0 {
			return fmt.Errorf("the query of /v1/auth has %.40q for units: use a whole number", value)
		}
	case "rate":
		q.call.Rate, err = strconv.ParseBool(value)
	case "nginx":
		q.nginx, err = strconv.ParseBool(value)
	default:
		return fmt.Errorf("the query of /v1/auth has %.40q, which is unknown: it takes feature, units, account_header, caller_header, rate, nginx", name)
	}
	if err != nil {
		return fmt.Errorf("the query of /v1/auth has %.40q for %s: use 1 or 0", value, name)
	}
	return nil
}
