package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	streamLife    = 10 * time.Minute // then the browser connects again, and its link is checked again
	streamBeat    = 15 * time.Second // a line that keeps proxies from closing a quiet stream
	streamWrite   = 10 * time.Second // that one write may take
	streamRetry   = 3000             // ms, after which a browser connects again
	perAccount    = 50               // streams
	asOfEvery     = 5 * time.Second  // numbers that stand still are confirmed that often
	maxReadErrors = 30               // in a row; then the page is told to try again later
)

// hub reads each watched account once, however many pages watch it.
type hub struct {
	pages *Pages
	ctx   context.Context //nolint:containedctx // the life of all watches, ended by close
	end   context.CancelFunc
	most  int

	mu      sync.Mutex
	watches map[string]*watch
	streams int
	done    sync.WaitGroup
}

// watch is one account's readers. Guarded by hub.mu.
type watch struct {
	readers map[chan []byte]struct{}
	last    []byte
	stop    context.CancelFunc
}

func newHub(p *Pages, most int) *hub {
	h := &hub{pages: p, most: most, watches: map[string]*watch{}}
	h.ctx, h.end = context.WithCancel(context.Background())
	return h
}

func (h *hub) close() {
	h.end()
	h.done.Wait()
}

// join adds a reader of an account, or reports false when there are too many. The channel is closed when the watch ends.
func (h *hub) join(account string) (<-chan []byte, func(), bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.watches[account]
	if h.ctx.Err() != nil || h.streams >= h.most || w != nil && len(w.readers) >= perAccount {
		return nil, nil, false
	}
	if w == nil {
		w = &watch{readers: map[chan []byte]struct{}{}}
		h.watches[account] = w
		ctx, stop := context.WithCancel(h.ctx)
		w.stop = stop
		h.done.Add(1)
		go func() {
			defer h.done.Done()
			h.watch(ctx, account, w)
		}()
	}
	c := make(chan []byte, 1)
	if w.last != nil {
		c <- w.last
	}
	w.readers[c] = struct{}{}
	h.streams++
	return c, func() { h.leave(account, w, c) }, true
}

func (h *hub) leave(account string, w *watch, c chan []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.streams--
	delete(w.readers, c)
	if len(w.readers) == 0 {
		w.stop()
		if h.watches[account] == w {
			delete(h.watches, account)
		}
	}
}

// watch reads an account's numbers until nobody is left, and passes on what changed.
func (h *hub) watch(ctx context.Context, account string, w *watch) {
	defer w.stop()
	every := time.NewTicker(h.pages.cfg.Refresh)
	defer every.Stop()
	var was string
	var told time.Time
	failures := 0
	for {
		message, content, err := h.pages.liveParts(ctx, account)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if failures++; failures == 1 || failures%maxReadErrors == 0 {
				h.pages.log.Warn("the numbers of a watched page can't be read; they are read again", "error", err)
			}
		default:
			failures = 0
			if content != was || time.Since(told) >= asOfEvery {
				was, told = content, time.Now()
				h.tell(w, message)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// tell gives every reader the newest message; one that has not fetched the last one skips it.
func (h *hub) tell(w *watch, message []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.last = message
	for c := range w.readers {
		select {
		case <-c:
		default:
		}
		c <- message
	}
}

// liveParts renders the parts of a page that move, and what of them is content, the instant left out.
func (p *Pages) liveParts(ctx context.Context, account string) (message []byte, content string, err error) {
	b, err := p.statement(ctx, account)
	if err != nil {
		return nil, "", err
	}
	v := b.page()
	parts := map[string]string{"announce": v.Announce}
	render := func(id, name string, data any) {
		var out bytes.Buffer
		if e := p.views.templates.ExecuteTemplate(&out, name, data); e != nil && err == nil {
			err = fmt.Errorf("render %s: %w", name, e)
		}
		parts[id] = out.String()
	}
	for i := range v.Features {
		render("live-"+v.Features[i].ID, "feature", v.Features[i])
	}
	render("live-past", "past", v)
	if err != nil {
		return nil, "", err
	}
	still, err := json.Marshal(parts)
	if err != nil {
		return nil, "", fmt.Errorf("encode the live parts: %w", err)
	}
	render("live-head", "head", v)
	if err != nil {
		return nil, "", err
	}
	message, err = json.Marshal(struct {
		Period string            `json:"period"`
		Parts  map[string]string `json:"parts"`
	}{v.Plan + v.Period, parts})
	if err != nil {
		return nil, "", fmt.Errorf("encode the live parts: %w", err)
	}
	return message, string(still), nil
}

// live streams a page's moving parts as server-sent events.
func (p *Pages) live(w http.ResponseWriter, r *http.Request) {
	private(w)
	account, until, ok := p.open(w, r.PathValue("token"))
	if !ok {
		return
	}
	messages, leave, ok := p.streams.join(account)
	if !ok {
		w.Header().Set("Retry-After", "30")
		p.fault(w, http.StatusServiceUnavailable, "Too many watchers", "Reload the page for newer numbers.")
		return
	}
	defer leave()
	rest := min(streamLife, until.Sub(p.cfg.WallClock()))
	ctx, cancel := context.WithTimeout(r.Context(), rest)
	defer cancel()
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{}) // a server's limit is meant for requests; where it can't be lifted the browser connects again
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	send := func(format string, args ...any) bool {
		_ = rc.SetWriteDeadline(time.Now().Add(streamWrite)) // likewise
		_, err := fmt.Fprintf(w, format, args...)
		return err == nil && rc.Flush() == nil
	}
	if !send("retry: %d\n\n", streamRetry) {
		return
	}
	beat := time.NewTicker(streamBeat)
	defer beat.Stop()
	for {
		var sent bool
		select {
		case <-ctx.Done():
			return
		case <-p.streams.ctx.Done():
			return
		case m := <-messages:
			sent = send("data: %s\n\n", m) // JSON: no line breaks in it
		case <-beat.C:
			sent = send(":\n\n")
		}
		if !sent {
			return
		}
	}
}
