package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weirhq/weir/internal/measure"
)

//go:embed ets.escript
var etsScript []byte

// ets measures the classic of the BEAM world, a counter in an ETS table, where Erlang is installed. It runs in its own
// process, so that a ratio is not one of the same round.
func ets(w *world, o measure.Options) ([]row, error) {
	program, err := exec.LookPath("escript")
	if err != nil {
		return []row{left("ETS update_counter", "Erlang is not installed here")}, nil
	}
	file := filepath.Join(w.dir, "ets.escript")
	if err := os.WriteFile(file, etsScript, 0o600); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(w.ctx, program, file, strconv.Itoa(keyCount), strconv.Itoa(o.Rounds)).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("run ets.escript: %w: %s", err, out)
	}
	var rows []row
	for line := range strings.Lines(string(out)) {
		name, figure, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok {
			return nil, fmt.Errorf("ets.escript printed %q", line)
		}
		peer := row{work: "peer: ETS update_counter, " + name, value: figure + " ns", reference: "–", ratio: "–"}
		if v, err := strconv.ParseFloat(figure, 64); err == nil && strings.Contains(name, "at random") && w.atRandom > 0 {
			peer = compared(peer.work+", times slower than Consume", peer.value, "Consume "+ns(w.atRandom), v/w.atRandom, 8, true)
		}
		rows = append(rows, peer)
	}
	return rows, nil
}
