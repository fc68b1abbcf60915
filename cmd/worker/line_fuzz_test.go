package main

import (
	"io"
	"strings"
	"testing"
	"time"
)

// Any command line is understood or refused: none ends the program otherwise, and dates are real ones.
func FuzzCommandLines(f *testing.F) {
	for _, line := range []string{
		"serve --addr 127.0.0.1:0", "usage shadow --since 2026-02-30", "adjust --reason x --at 2026-01-01T00:00:00Z acme events -- -5",
		"close-report --month 2026-13", "late release 17 --policy invoice_item", "plans push --price a=1.00/month", "override --included 9223372036854775808 a b",
		"link acme --for 1e9h", "--json", "", "nonsense --x",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Fields(line)
		for _, a := range args {
			if strings.HasSuffix(a, "-file") || strings.Contains(a, "-file=") {
				return // files are read when a command runs, not here
			}
		}
		var c commands
		helped := false
		p, err := newParser(&c, func(string) string { return "" }, io.Discard, io.Discard, &helped)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Parse(args); err != nil || helped {
			return
		}
		for _, at := range []time.Time{c.Adjust.At, c.Usage.Shadow.Since} {
			if at.Year() > 9999 || at.Year() < 0 {
				t.Fatalf("%q is an instant that the database cannot hold: %s", line, at)
			}
		}
	})
}
