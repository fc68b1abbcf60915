// Command bench measures Weir beside its peers, on the same work, in one process and round, and prints a line for each
// target: value, reference, ratio, target, met or not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"time"

	"github.com/weirhq/weir/internal/measure"
)

// sections are the parts of the table, in its order.
var sections = []struct {
	name string
	run  func(*world, measure.Options) ([]row, error)
}{
	{"hot", hot},
	{"keys", keys},
	{"postgres", flushes},
	{"hot-account", hotAccount},
	{"cap", nearTheCap},
	{"recall", recalls},
	{"trips", trips},
	{"stall", stall},
	{"sidecar", sidecar},
	{"boundary", boundary},
	{"ets", ets},
}

func main() {
	if database := os.Getenv(serverVariable); database != "" {
		if err := serveMeasured(context.Background(), database); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		return
	}
	only := flag.String("only", ".", "sections to run, a regular expression: hot, keys, postgres, hot-account, cap, recall, trips, stall, sidecar, boundary, ets")
	rounds := flag.Int("rounds", 5, "rounds; the medians are printed")
	most := flag.Duration("most", 20*time.Minute, "ends by itself after this time")
	flag.IntVar(&keyCount, "keys", keyCount, "accounts of the section keys")
	flag.IntVar(&tripCount, "trips", tripCount, "accounts of the section trips")
	flag.IntVar(&boundaryCount, "boundary", boundaryCount, "accounts of the section boundary; the target is set for 100000")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *most)
	defer cancel()
	if err := run(ctx, *only, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, rounds int) error {
	chosen, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	w, err := newWorld(ctx)
	if err != nil {
		return err
	}
	defer w.close()
	before := load()
	fmt.Printf("%s, %s/%s, %d cores, load %s\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), before)
	var rows []row
	var failed []error
	for _, s := range sections {
		if !chosen.MatchString(s.name) {
			continue
		}
		began := time.Now()
		found, err := s.run(w, measure.Options{Rounds: rounds, Patience: 3 * time.Minute})
		if err != nil {
			found = []row{left(s.name, "not measured: "+err.Error())}
			failed = append(failed, fmt.Errorf("%s: %w", s.name, err))
		}
		rows = append(rows, found...)
		fmt.Fprintf(os.Stderr, "%s: %s, load %s\n", s.name, time.Since(began).Round(time.Second), load())
	}
	print(os.Stdout, rows)
	fmt.Printf("\nload at the end: %s\n", load())
	if busy(before, runtime.NumCPU()) {
		fmt.Println("The machine was busy before: measure again without its other work before you believe a miss.")
	}
	return errors.Join(failed...)
}
