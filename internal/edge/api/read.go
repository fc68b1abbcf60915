package api

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/weirhq/weir/internal/edge/problem"
	"github.com/weirhq/weir/internal/edge/wire"
)

// parse reads a request's body. status is 0 when it could; otherwise the request is answered already.
func (a *API) parse(w http.ResponseWriter, r *http.Request, s wire.Shape) (calls []wire.Call, list bool, status int) {
	body, err := read(w, r)
	if err != nil {
		return nil, false, invalid(w, unreadable(err))
	}
	calls, list, err = wire.Parse(body, s)
	if err != nil {
		return nil, false, invalid(w, "The body can't be used: "+err.Error()+".")
	}
	return calls, list, 0
}

func read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limited := http.MaxBytesReader(w, r.Body, MaxBody)
	if n := r.ContentLength; n >= 0 && n <= MaxBody {
		body := make([]byte, n)
		_, err := io.ReadFull(limited, body)
		return body, err
	}
	return io.ReadAll(limited)
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

func invalid(w http.ResponseWriter, message string) int {
	return fault(w, http.StatusBadRequest, problem.InvalidRequest, "Invalid request", message)
}
