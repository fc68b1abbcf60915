package plans

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Problem is one thing that is wrong with a plan file, or one warning about it. All text that
// comes from the file is quoted and shortened, so a problem is safe to print and to log.
type Problem struct {
	Line       int    // from 1; 0 when the catalog was decoded from JSON, or the place is the file itself
	Column     int    // from 1, in characters; 0 likewise
	Path       string // dotted: plans.pro.quota.events.included; empty for the file itself
	Message    string // what is wrong
	Suggestion string // what to write instead; may be empty
}

// String is the problem on one line, without the file's name.
func (p Problem) String() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "%d:%d: ", p.Line, p.Column)
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	if p.Suggestion != "" {
		b.WriteString("; " + p.Suggestion)
	}
	return b.String()
}

// Errors is everything that is wrong with a plan file, in the order of the file. Load, Parse and
// Decode return it as a *Errors; a file that has one is not used at all.
type Errors struct {
	File     string // as given to Load; empty for Parse and Decode
	Problems []Problem
	More     int // problems found beyond the first 100
}

// Error prints every problem on a line of its own, as a compiler does: file:line:column: message.
func (e *Errors) Error() string {
	lines := make([]string, 0, len(e.Problems)+1)
	for _, p := range e.Problems {
		lines = append(lines, e.Line(p))
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("%s: and %d more problems", e.file(), e.More))
	}
	return strings.Join(lines, "\n")
}

// Line is one problem as Error prints it.
func (e *Errors) Line(p Problem) string {
	if p.Line > 0 {
		return e.file() + ":" + p.String()
	}
	return e.file() + ": " + p.String()
}

func (e *Errors) file() string {
	if e.File == "" {
		return "plan file"
	}
	return printable(e.File)
}

// problems collects what is found, in any order.
type problems struct {
	list []Problem
	bad  map[string]bool // paths with a problem
}

func (ps *problems) add(p Problem) {
	if ps.bad == nil {
		ps.bad = make(map[string]bool)
	}
	ps.bad[p.Path] = true
	ps.list = append(ps.list, p)
}

// has reports whether one of the paths has a problem, so that what follows from it is not reported too.
func (ps *problems) has(paths ...string) bool {
	return slices.ContainsFunc(paths, func(path string) bool { return ps.bad[path] })
}

// err returns nil, or all problems in the order of the file.
func (ps *problems) err() error {
	if len(ps.list) == 0 {
		return nil
	}
	list := sorted(ps.list)
	e := &Errors{Problems: list}
	if len(list) > maxProblems {
		e.Problems, e.More = list[:maxProblems:maxProblems], len(list)-maxProblems
	}
	return e
}

func sorted(list []Problem) []Problem {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return list
}

// quote makes text from a file safe and short to print.
func quote(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most]) + "…"
	}
	return strconv.Quote(s)
}

// printable replaces what would break a line or a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
