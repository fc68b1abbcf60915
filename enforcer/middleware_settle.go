package enforcer

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
)

// report is what a handler has told of its units; −1: nothing.
type report struct{ units atomic.Int64 }

// reserved runs the handler with its units set aside, and settles or cancels by what became of it. It goes on when the
// client has left: the work is done.
func (g *gate) reserved(w http.ResponseWriter, r *http.Request, rate Decision, account, feature string, units int64) {
	held, err := g.e.Reserve(r.Context(), account, feature, units)
	if err != nil {
		if refused, ok := undecided(err); ok {
			g.refuse(w, rate, refused, refused)
			return
		}
		g.fail(w, err)
		return
	}
	after := context.WithoutCancel(r.Context())
	returned := false
	defer func() {
		if !returned { // a panic, or runtime.Goexit
			_ = held.Cancel(after)
		}
	}()
	left := held.Decision()
	left.Remaining = max(0, left.Remaining-units) // nobody else can have what is set aside
	g.answers().Headers(w.Header(), rate, left)
	told := &report{}
	told.units.Store(-1)
	if g.cfg.Settle {
		r = r.WithContext(context.WithValue(r.Context(), reportKey{}, told))
	}
	seen := &watched{ResponseWriter: w, status: http.StatusOK}
	g.next.ServeHTTP(seen, r)
	returned = true
	if g.cfg.GiveBack != nil && g.cfg.GiveBack(seen.status) {
		_ = held.Cancel(after) // has no error
		return
	}
	used := told.units.Load()
	if used < 0 {
		used = units
	}
	if _, err := held.Settle(after, used); err != nil {
		g.e.cfg.Logger.Error("weir: a handler's report can't be counted; what was set aside is", "account", account, "feature", feature, "error", err)
		_, _ = held.Settle(after, units)
	}
}

// watched remembers the status that a handler answers with. It passes on what the writer below it can do.
type watched struct {
	http.ResponseWriter
	status int
	sent   bool
}

func (w *watched) note(status int) {
	if !w.sent && (status >= 200 || status == http.StatusSwitchingProtocols) { // other 1xx come before the answer
		w.sent, w.status = true, status
	}
}

func (w *watched) WriteHeader(status int) {
	w.note(status)
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(b []byte) (int, error) {
	w.note(http.StatusOK)
	return w.ResponseWriter.Write(b)
}

// ReadFrom keeps a file's way to the socket short.
func (w *watched) ReadFrom(r io.Reader) (int64, error) {
	w.note(http.StatusOK)
	return io.Copy(w.ResponseWriter, r)
}

// Flush is for handlers that stream and know no http.ResponseController.
func (w *watched) Flush() {
	w.note(http.StatusOK)
	_ = http.NewResponseController(w.ResponseWriter).Flush() // a writer that can't has nothing to flush
}

// Hijack is for handlers that take the connection over and know no http.ResponseController.
func (w *watched) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.ResponseWriter).Hijack()
}

// Unwrap is how http.ResponseController finds the rest.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }
