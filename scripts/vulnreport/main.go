// Command vulnreport reads what govulncheck -format json prints, and says what matters: faults in code that is called.
// It ends with 1 when one of them is in a dependency; those of the Go toolchain's library are mended by a newer Go and
// only printed.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

func main() {
	called, err := report(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulnreport:", err)
	}
	if err != nil || called > 0 {
		os.Exit(1)
	}
}

// message is one of govulncheck's, as far as it is read here (golang.org/x/vuln/internal/govulncheck).
type message struct {
	OSV *struct {
		ID      string `json:"id"`
		Summary string `json:"summary"`
	} `json:"osv"`
	Finding *struct {
		OSV   string `json:"osv"`
		Fixed string `json:"fixed_version"`
		Trace []struct {
			Module   string `json:"module"`
			Version  string `json:"version"`
			Package  string `json:"package"`
			Function string `json:"function"`
			Receiver string `json:"receiver"`
		} `json:"trace"`
	} `json:"finding"`
	Config *struct {
		DB string `json:"db"`
	} `json:"config"`
}

type fault struct{ id, summary, module, version, fixed, by string }

// report prints the faults and returns how many of them are in dependencies and called.
func report(in io.Reader, out io.Writer) (int, error) {
	summaries, faults, looked := map[string]string{}, map[string]fault{}, false
	for dec := json.NewDecoder(in); ; {
		var m message
		err := dec.Decode(&m)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("read what govulncheck said: %w", err)
		}
		looked = looked || m.Config != nil
		if m.OSV != nil {
			summaries[m.OSV.ID] = m.OSV.Summary
		}
		f := m.Finding
		if f == nil || len(f.Trace) == 0 || f.Trace[0].Function == "" {
			continue // in a module or package that is required, and not called
		}
		at := f.Trace[0]
		name := strings.TrimPrefix(at.Receiver+"."+at.Function, ".")
		faults[at.Module+" "+f.OSV] = fault{f.OSV, "", at.Module, at.Version, f.Fixed, at.Package + "." + name}
	}
	if !looked {
		return 0, errors.New("read what govulncheck said: it said nothing, so nothing was looked at")
	}
	var called, toolchain int
	for _, key := range slices.Sorted(maps.Keys(faults)) {
		f := faults[key]
		fixed := f.fixed
		if fixed == "" {
			fixed = "no version yet"
		}
		where := f.module + " " + f.version
		if f.module == "stdlib" {
			toolchain++
			where = "THE GO TOOLCHAIN " + f.version
		} else {
			called++
		}
		_, _ = fmt.Fprintf(out, "  %s in %s, mended by %s: %s (calls %s)\n", f.id, where, fixed, summaries[f.id], f.by)
	}
	_, err := fmt.Fprintf(out, "  %d in dependencies, %d in the Go toolchain\n", called, toolchain)
	if toolchain > 0 {
		_, err = fmt.Fprintln(out, "  BUILD WITH A NEWER GO: what is listed for the toolchain is in every program that this one builds")
	}
	return called, err
}
