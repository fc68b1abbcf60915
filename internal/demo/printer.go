package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// printer writes the demo's progress, a line a step, for people.
type printer struct {
	out   io.Writer
	color bool
	title string
	began time.Time
	notes []string
}

func newPrinter(out io.Writer, color bool) *printer { return &printer{out: out, color: color} }

func (p *printer) paint(code, text string) string {
	if !p.color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p *printer) printf(format string, args ...any) { _, _ = fmt.Fprintf(p.out, format, args...) }

func (p *printer) step(title string) {
	p.title, p.began, p.notes = title, time.Now(), nil
	if p.color {
		p.printf("  … %s", title)
	}
}

// detail adds a remark to the step's line.
func (p *printer) detail(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

func (p *printer) done() { p.end(p.paint("32", "✓")) }

func (p *printer) failed() { p.end(p.paint("31", "✗")) }

func (p *printer) end(mark string) {
	if p.color {
		p.printf("\r\x1b[K")
	}
	took := time.Since(p.began).Round(10 * time.Millisecond)
	p.printf("  %s %-26s %s\n", mark, p.title, p.paint("2", strings.Join(append(p.notes, took.String()), " · ")))
}

func (p *printer) verdict(agree bool, took time.Duration) {
	if agree {
		p.printf("\n  %s (%s)\n\n", p.paint("32;1", "Every unit is on exactly one side of every line: all numbers agree."), took.Round(100*time.Millisecond))
		return
	}
	p.printf("\n  %s\n\n", p.paint("31;1", "The numbers do not agree."))
}

// table prints rows under a header; columns after the first are numbers, right-aligned.
func (p *printer) table(header []string, rows [][]string, good []bool) {
	width := make([]int, len(header))
	for _, row := range append([][]string{header}, rows...) {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	line := func(row []string) string {
		var b strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-len([]rune(cell)))
			if i == 0 {
				b.WriteString(cell + pad)
			} else {
				b.WriteString("  " + pad + cell)
			}
		}
		return b.String()
	}
	p.printf("\n    %s\n", p.paint("1", line(header)))
	for i, row := range rows {
		mark := p.paint("32", "=")
		if !good[i] {
			mark = p.paint("31", "≠")
		}
		p.printf("  %s %s\n", mark, line(row))
	}
}
