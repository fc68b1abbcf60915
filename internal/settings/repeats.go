package settings

import (
	"context"
	"hash/maphash"
	"log/slog"
	"sync"
	"time"
)

// Bounds of warnings and errors, which a database that is away, or a stranger, could cause without an end.
const (
	repeatsWithin = time.Minute
	maxLines      = 20  // of one message in that time, which differ in what they tell
	maxMessages   = 200 // that are told apart
)

// repeats passes each warning and error on once a minute, and at most maxLines of one message that differ. How many were
// left out is told with the next line of the message, or, where none comes, by a line of its own before any other one.
// What is less than a warning passes.
type repeats struct {
	next  slog.Handler
	told  *told
	above uint64 // a hash of the attributes and groups that all lines of this handler have
}

type told struct {
	seed maphash.Seed

	mu       sync.Mutex // guards what follows
	messages map[message]*window
	swept    time.Time
}

type message struct {
	level slog.Level
	text  string
}

// window is a minute of one message.
type window struct {
	began time.Time
	seen  map[uint64]bool
	left  int64 // lines that were not passed on
}

func newRepeats(next slog.Handler) *repeats {
	return &repeats{next: next, told: &told{seed: maphash.MakeSeed(), messages: map[message]*window{}}}
}

func (h *repeats) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *repeats) Handle(ctx context.Context, r slog.Record) error {
	pass, left, before := h.told.take(r, h.above)
	for m, n := range before {
		over := slog.NewRecord(r.Time, m.level, m.text, 0)
		over.Add("left_out", n)
		if err := h.next.Handle(ctx, over); err != nil {
			return err
		}
	}
	if !pass {
		return nil
	}
	if left > 0 {
		r = r.Clone()
		r.Add("left_out", left)
	}
	return h.next.Handle(ctx, r)
}

func (h *repeats) WithAttrs(attrs []slog.Attr) slog.Handler {
	above := h.above
	for _, a := range attrs {
		above = above*31 + maphash.String(h.told.seed, a.String())
	}
	return &repeats{h.next.WithAttrs(attrs), h.told, above}
}

func (h *repeats) WithGroup(name string) slog.Handler {
	return &repeats{h.next.WithGroup(name), h.told, h.above*31 + maphash.String(h.told.seed, name)}
}

// take counts a record. It reports whether it passes, how many of its message were left out before it, and which messages
// left lines out in a minute that is over.
func (t *told) take(r slog.Record, above uint64) (pass bool, left int64, before map[message]int64) {
	line := above
	if r.Level >= slog.LevelWarn {
		r.Attrs(func(a slog.Attr) bool {
			line = line*31 + maphash.String(t.seed, a.String())
			return true
		})
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	m := message{r.Level, r.Message}
	if r.Level >= slog.LevelWarn {
		w := t.of(&m, r.Time)
		if w.over(r.Time) {
			left = w.left
			*w = window{began: r.Time, seen: map[uint64]bool{}}
		}
		if pass = !w.seen[line] && len(w.seen) < maxLines; pass {
			w.seen[line] = true
		} else {
			w.left++
		}
	} else {
		pass = true
	}
	return pass, left, t.sweep(r.Time)
}

// of is the window of a message. Beyond so many messages the others share one.
func (t *told) of(m *message, now time.Time) *window {
	w, ok := t.messages[*m]
	if !ok && len(t.messages) >= maxMessages {
		m.text = "further messages"
		w, ok = t.messages[*m]
	}
	if !ok {
		w = &window{began: now, seen: map[uint64]bool{}}
		t.messages[*m] = w
	}
	return w
}

// sweep forgets the minutes that are over, and returns what was left out in them.
func (t *told) sweep(now time.Time) map[message]int64 {
	if d := now.Sub(t.swept); d >= 0 && d < repeatsWithin/10 {
		return nil
	}
	t.swept = now
	left := map[message]int64{}
	for m, w := range t.messages {
		if !w.over(now) {
			continue
		}
		if w.left > 0 {
			left[m] = w.left
		}
		delete(t.messages, m)
	}
	return left
}

func (w *window) over(now time.Time) bool {
	d := now.Sub(w.began)
	return d < 0 || d >= repeatsWithin
}
