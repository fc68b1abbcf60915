package stripesim

import (
	"sort"
	"time"
)

const idAlphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// object is one JSON object of an answer.
type object = map[string]any

// record is what all stored objects have. seq grows with every object made, so
// it orders lists even within one second.
type record struct {
	id      string
	seq     int64
	created time.Time
}

func (r *record) rec() *record { return r }

type entity interface{ rec() *record }

// table holds the objects of one kind by id and in order of creation.
type table[T entity] struct {
	byID map[string]T
	rows []T
}

func newTable[T entity]() table[T] { return table[T]{byID: make(map[string]T)} }

func (t *table[T]) add(v T) {
	t.byID[v.rec().id] = v
	t.rows = append(t.rows, v)
}

func (t *table[T]) get(id string) (T, bool) {
	v, ok := t.byID[id]
	return v, ok
}

// remove forgets an object; used for the few that Stripe forgets too.
func (t *table[T]) remove(id string) {
	v, ok := t.byID[id]
	if !ok {
		return
	}
	delete(t.byID, id)
	t.rows = without(t.rows, v)
}

// without cuts v out of rows, which are in order of creation.
func without[T entity](rows []T, v T) []T {
	seq := v.rec().seq
	i := sort.Search(len(rows), func(i int) bool { return rows[i].rec().seq >= seq })
	if i == len(rows) || rows[i].rec().seq != seq {
		return rows
	}
	return append(rows[:i:i], rows[i+1:]...)
}

func (s *Server) newID(prefix string, length int) string {
	out := make([]byte, 0, len(prefix)+1+length)
	out = append(out, prefix...)
	out = append(out, '_')
	for range length {
		out = append(out, idAlphabet[s.rng.IntN(len(idAlphabet))])
	}
	return string(out)
}

func (s *Server) newRecord(prefix string, length int, at time.Time) record {
	s.seq++
	return record{id: s.newID(prefix, length), seq: s.seq, created: at}
}

// unix is a timestamp for JSON: seconds, or null for the zero time.
func unix(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.Unix()
}

// nullable is text for JSON: null when empty.
func nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// pairs is metadata for JSON: never null.
func pairs(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}
