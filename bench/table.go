package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// row is one line of the table.
type row struct {
	work      string
	value     string
	reference string
	ratio     string
	target    string
	met       bool
	note      string // instead of figures: why there are none
}

// compared is a row whose value is held against a reference by a ratio that must not be above, or below, a target.
func compared(work, value, reference string, ratio, target float64, above bool) row {
	r := row{work: work, value: value, reference: reference, ratio: fmt.Sprintf("%.2f", ratio), target: fmt.Sprintf("≤ %.4g", target), met: ratio <= target}
	if above {
		r.target, r.met = fmt.Sprintf("≥ %.4g", target), ratio >= target
	}
	return r
}

// absolute is a row whose value itself is held against a target.
func absolute(work string, value, target float64, unit string, above bool) row {
	r := row{work: work, value: fmt.Sprintf("%.4g %s", value, unit), reference: "–", ratio: "–", target: fmt.Sprintf("≤ %.4g %s", target, unit), met: value <= target}
	if above {
		r.target, r.met = fmt.Sprintf("≥ %.4g %s", target, unit), value >= target
	}
	return r
}

func left(work, why string) row { return row{work: work, note: why} }

// print writes the rows as a Markdown table.
func print(out io.Writer, rows []row) {
	fmt.Fprintln(out, "| work | value | reference | ratio | target | |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|")
	for _, r := range rows {
		mark := "met"
		switch {
		case r.note != "":
			fmt.Fprintf(out, "| %s | %s | | | | – |\n", r.work, r.note)
			continue
		case r.target == "":
			mark = ""
		case !r.met:
			mark = "**missed**"
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s |\n", r.work, r.value, r.reference, r.ratio, r.target, mark)
	}
}

// load is the machine's load averages, which stand beside every table.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(data))[:3], " ")
}

// busy tells whether more waits for a core than there are cores, by load's last minute.
func busy(load string, cores int) bool {
	minute, _, _ := strings.Cut(load, " ")
	n, err := strconv.ParseFloat(minute, 64)
	return err == nil && n > float64(cores)
}
