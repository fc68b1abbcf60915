package api

import (
	"bytes"
	"strconv"

	"github.com/weirhq/weir/enforcer"
)

// encoder appends decisions as Decision.AppendJSON does. What the last one shares with the next, which is all but three
// numbers where account and feature are the same, it keeps as bytes. The zero value is ready; for one goroutine.
type encoder struct {
	of         enforcer.Decision // the last one
	head, tail []byte
}

const (
	usedMember      = `,"used":`
	remainingMember = `,"remaining":`
	overageMember   = `,"overage":`
)

func (e *encoder) append(b []byte, d *enforcer.Decision) []byte {
	if d.Terms == nil || d.RetryAfter != 0 {
		return d.AppendJSON(b)
	}
	if e.of.Terms != d.Terms || e.of.Limit != d.Limit || e.of.Allowed != d.Allowed || e.of.Unlimited != d.Unlimited || e.of.Reason != d.Reason {
		e.learn(d)
	}
	b = strconv.AppendInt(append(b, e.head...), d.Used, 10)
	b = append(b, remainingMember...)
	if d.Unlimited {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, d.Remaining, 10)
	}
	b = strconv.AppendInt(append(b, overageMember...), d.Overage, 10)
	return append(b, e.tail...)
}

// learn cuts what stays the same out of the whole. No text in it can look like a member: quotes are escaped there.
func (e *encoder) learn(d *enforcer.Decision) {
	e.of = *d
	e.head = d.AppendJSON(e.head[:0])
	at := bytes.Index(e.head, []byte(overageMember)) + len(overageMember)
	for at < len(e.head) && (e.head[at] == '-' || e.head[at] >= '0' && e.head[at] <= '9') {
		at++
	}
	e.tail = append(e.tail[:0], e.head[at:]...)
	e.head = e.head[:bytes.Index(e.head, []byte(usedMember))+len(usedMember)]
}
