package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
)

// print writes the outcome of a command: as JSON when that is asked for, else for people.
func (c *call) print(v any, people func(io.Writer) error) error {
	if !c.JSON {
		return people(c.out)
	}
	enc := json.NewEncoder(c.out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// table writes rows in columns, the first row being their names. Text in them cannot steer a terminal.
func table(rows [][]string) func(io.Writer) error {
	return func(out io.Writer) error {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, row := range rows {
			cells := make([]string, len(row))
			for i, cell := range row {
				cells[i] = plain(cell)
			}
			_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
		}
		return w.Flush()
	}
}

// line writes one line for people.
func line(format string, args ...any) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := fmt.Fprintf(w, format+"\n", args...)
		return err
	}
}

// plain is text on one line, without what would move the cursor or break the columns.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return '�'
		}
		return r
	}, s)
}

func count(n int64) string { return strconv.FormatInt(n, 10) }
