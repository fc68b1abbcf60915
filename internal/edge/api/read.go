package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/weirhq/weir/internal/edge/problem"
	"github.com/weirhq/weir/internal/edge/wire"
)

// scratch is what a request reads and writes with. It is used again by later ones: a batch would otherwise make
// garbage of some forty kilobytes.
type scratch struct {
	in, out []byte
	calls   []wire.Call
	encoder encoder
}

// mostKept is the size of what is kept for later requests.
const mostKept = 512 << 10

func (a *API) take() *scratch {
	if s, ok := a.scratches.Get().(*scratch); ok {
		return s
	}
	return &scratch{in: make([]byte, 0, 512), out: make([]byte, 0, 512), calls: make([]wire.Call, 0, 1)}
}

func (a *API) putBack(s *scratch) {
	clear(s.calls) // texts of callers are not kept
	if cap(s.out) <= mostKept {
		a.scratches.Put(s)
	}
}

// parse reads a request's body into s.calls. status is 0 when it could; otherwise the request is answered already.
func (a *API) parse(w http.ResponseWriter, r *http.Request, s *scratch, shape wire.Shape) (list bool, status int) {
	var err error
	if s.in, err = read(s.in[:0], w, r); err != nil {
		return false, invalid(w, unreadable(err))
	}
	calls, list, err := wire.Parse(s.calls, s.in, shape)
	if err != nil {
		clear(s.calls[:cap(s.calls)]) // how many were read is not told
		if len(r.Header["Content-Encoding"]) > 0 {
			return false, invalid(w, "The body can't be used: it came with Content-Encoding, which this server does not undo: send it as it is.")
		}
		return false, invalid(w, "The body can't be used: "+err.Error()+".")
	}
	s.calls = calls
	return list, 0
}

func read(into []byte, w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if n := r.ContentLength; n >= 0 && n <= MaxBody { // net/http reads no further
		into = slices.Grow(into, int(n))[:n]
		if _, err := io.ReadFull(r.Body, into); err != nil {
			return into, err
		}
		return into, r.Body.Close() // nothing is left of it: net/http need not look
	}
	return io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
}

func unreadable(err error) string {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return fmt.Sprintf("The body is larger than %d bytes: send at most %d calls in a request.", large.Limit, MaxBatch)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "The body did not arrive in time: send it at once."
	}
	return "The body ends too early: its length and Content-Length differ, or the connection was lost."
}

// sentence is an error for people.
func sentence(err error) string {
	s := err.Error()
	return strings.ToUpper(s[:1]) + s[1:] + "."
}

func invalid(w http.ResponseWriter, message string) int {
	return fault(w, http.StatusBadRequest, problem.InvalidRequest, "Invalid request", message)
}
