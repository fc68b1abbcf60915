// Package measure compares costs in one process on a machine that others use too.
//
// Each piece of work runs in slices of a fraction of a millisecond, in turns with the work that it is compared with.
// A slice counts only when its threads had a core to themselves: their CPU time is at least 95 % of the wall time. A
// round is the median of its clean slices; results are medians over rounds, and ratios are taken within a round.
package measure

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
)

// Work is something that can be repeated.
type Work struct {
	Name string
	// Do makes n calls. With Cores above 1 it is called on as many threads at once.
	Do func(n int)
	// Cores is the number of threads; 0 means 1.
	Cores int
	// Elsewhere says that the work waits for goroutines of its own. Its cost is then the CPU time of the whole process,
	// and no slice of it counts as spoiled.
	Elsewhere bool
}

// Options bound a comparison. The zero value is usable.
type Options struct {
	Rounds   int           // default 5
	Slices   int           // clean slices of each work per round; default 25
	Slice    time.Duration // how long one slice takes; default 300 µs
	Patience time.Duration // for all rounds together; default 60 s
}

// ErrNoisy is returned when the machine left too few clean slices within Options.Patience.
var ErrNoisy = errors.New("the machine is too busy to measure on")

const (
	cleanShare = 0.95 // of a slice's wall time that its threads must have run
	chunks     = 16   // of a slice on several threads, after each of which they look whether the first is done
)

// Result is one work's cost.
type Result struct {
	Name string
	// NS is nanoseconds per call and core.
	NS float64
	// Rounds are the same of each round.
	Rounds []float64
	// Dropped is how many slices were spoiled.
	Dropped int
}

// PerSecond is the throughput of all cores together.
func (r Result) PerSecond(cores int) float64 { return float64(cores) * 1e9 / r.NS }

// Over is the median of the ratios of r to ref, round by round. Both come from one Compare.
func (r Result) Over(ref Result) float64 {
	ratios := make([]float64, 0, len(r.Rounds))
	for i := range min(len(r.Rounds), len(ref.Rounds)) {
		ratios = append(ratios, r.Rounds[i]/ref.Rounds[i])
	}
	return Median(ratios)
}

// Median is the middle of the values, 0 of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}

// Compare measures each work in turns with all others.
func Compare(o Options, works ...Work) ([]Result, error) {
	o = o.withDefaults()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	results := make([]Result, len(works))
	calls := make([]int, len(works))
	for i, w := range works {
		results[i].Name = w.Name
		calls[i] = w.calibrate(o.Slice)
	}
	deadline := time.Now().Add(o.Patience)
	for range o.Rounds {
		clean := make([][]float64, len(works))
		for missing := true; missing; {
			missing = false
			for i, w := range works {
				if len(clean[i]) >= o.Slices {
					continue
				}
				missing = true
				if ns, ok := w.slice(calls[i]); ok {
					clean[i] = append(clean[i], ns)
				} else {
					results[i].Dropped++
				}
			}
			if missing && time.Now().After(deadline) {
				return nil, fmt.Errorf("compare %s: %w: %d of %d rounds in %s", works[0].Name, ErrNoisy, len(results[0].Rounds), o.Rounds, o.Patience)
			}
		}
		for i := range works {
			results[i].Rounds = append(results[i].Rounds, Median(clean[i]))
		}
	}
	for i := range results {
		results[i].NS = Median(results[i].Rounds)
	}
	return results, nil
}

func (o Options) withDefaults() Options {
	if o.Rounds == 0 {
		o.Rounds = 5
	}
	if o.Slices == 0 {
		o.Slices = 25
	}
	if o.Slice == 0 {
		o.Slice = 300 * time.Microsecond
	}
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	return o
}

// calibrate finds how many calls fill a slice.
func (w Work) calibrate(slice time.Duration) int {
	n := chunks
	for {
		best := time.Duration(1 << 62)
		for range 5 {
			began := time.Now()
			w.Do(n)
			best = min(best, time.Since(began))
		}
		if best >= slice/4 || n >= 1<<24 {
			return max(chunks, int(float64(n)*float64(slice)/float64(max(best, 1))))
		}
		n *= 2
	}
}

// slice runs n calls on each core and returns nanoseconds per call and core, and whether nobody disturbed it.
func (w Work) slice(n int) (ns float64, clean bool) {
	if w.Elsewhere {
		began := processTime()
		w.Do(n)
		return float64(processTime()-began) / float64(n), true
	}
	if w.Cores <= 1 {
		wall, cpu := timed(func() { w.Do(n) })
		return float64(wall) / float64(n), float64(cpu) >= cleanShare*float64(wall)
	}
	return w.together(n)
}

// together runs the work on several threads that begin at once; the first one makes n calls, the others as many as
// they can meanwhile.
func (w Work) together(n int) (ns float64, clean bool) {
	var here, stop atomic.Int64
	each := max(1, n/chunks)
	rates := make(chan float64, w.Cores)
	run := func(first bool) {
		here.Add(1)
		for here.Load() < int64(w.Cores) {
			runtime.Gosched()
		}
		done := 0
		wall, cpu := timed(func() {
			for c := 0; first && c < chunks || !first && stop.Load() == 0; c++ {
				w.Do(each)
				done += each
			}
		})
		stop.Store(1)
		if float64(cpu) < cleanShare*float64(wall) {
			rates <- 0
			return
		}
		rates <- float64(done) / float64(wall)
	}
	for range w.Cores - 1 {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			run(false)
		}()
	}
	run(true)
	clean = true
	var sum float64
	for range w.Cores {
		r := <-rates
		clean = clean && r > 0
		sum += r
	}
	return float64(w.Cores) / sum, clean
}

func timed(do func()) (wall, cpu time.Duration) {
	c, began := threadTime(), time.Now()
	do()
	return time.Since(began), threadTime() - c
}
