package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/measure"
)

// boundaryCount is how many accounts of the section boundary end at one instant.
var boundaryCount = 2_000

// What the test logs of its run.
var (
	accepted = regexp.MustCompile(`(\d+) accounts: (\S+) from the first to the last event accepted \((\d+)/s\)`)
	heldMost = regexp.MustCompile(`held at once: at most (\d+) links, \d+ KiB .* first half at most (\d+), in the second (\d+)\)`)
)

// boundary runs the test that sends a report of every account at one boundary to the simulator, under the limits that
// Stripe has: it stands there because it looks at every report.
func boundary(w *world, _ measure.Options) ([]row, error) {
	cmd := exec.CommandContext(w.ctx, "go", "test", "-count=1", "-timeout=20m", "-v", "-run=^TestCase41fManyAccountsAtOneBoundary$", "./billing")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), fmt.Sprint("WEIR_BOUNDARY=", boundaryCount))
	out, err := cmd.CombinedOutput()
	if err != nil {
		text := strings.Split(strings.TrimSpace(string(out)), "\n")
		return nil, fmt.Errorf("%w: %s", err, strings.Join(text[max(0, len(text)-3):], " "))
	}
	found, held := accepted.FindStringSubmatch(string(out)), heldMost.FindStringSubmatch(string(out))
	if found == nil || held == nil {
		return nil, fmt.Errorf("the test that counts them was not found, or printed no figure")
	}
	took, err := time.ParseDuration(found[2])
	if err != nil {
		return nil, err
	}
	r := absolute(fmt.Sprintf("%s reports at one boundary, 1,000 calls/s allowed: first to last event accepted (%s/s)", found[1], found[3]), took.Seconds(), 180, "s", false)
	if boundaryCount < 100_000 {
		r.target = "" // it is set for 100,000
	}
	memory := row{
		work:  "its memory: links held at once, the worker's part of the heap in the first and the second half",
		value: held[1], reference: fmt.Sprintf("%s, %s KiB", held[2], held[3]),
	}
	return []row{r, memory}, nil
}
