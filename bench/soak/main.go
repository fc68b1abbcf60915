// Command soak runs three nodes, a worker, PostgreSQL and the Stripe simulator under mixed traffic for a bounded time,
// kills, stalls and cuts all of them at random while months pass, and then holds every number against every other.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"sync"
	"time"
)

var errDisagree = errors.New("the numbers do not agree")

func main() {
	lasting := flag.Duration("for", 30*time.Minute, "how long traffic and faults last; the settling takes up to 5 minutes more")
	month := flag.Duration("month", 40*time.Second, "how long a month takes")
	bin := flag.String("bin", "../bin", "folder of the programs worker and enforcer")
	seed := flag.Uint64("seed", rand.Uint64(), "of traffic and faults")
	keep := flag.Bool("logs", false, "print the end of each program's log")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *lasting+6*time.Minute)
	defer cancel()
	if err := run(ctx, *bin, *lasting, *month, *seed, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bin string, lasting, month time.Duration, seed uint64, keep bool) (err error) {
	s, err := newStack(ctx, bin)
	if s != nil {
		defer s.close()
		defer func() {
			if err != nil || keep {
				s.lastWords()
			}
		}()
	}
	if err != nil {
		return err
	}
	t := &traffic{}
	if err := s.subscribeAll(ctx, t); err != nil {
		return err
	}
	fmt.Printf("seed %d, %s, a month every %s\n\n", seed, lasting, month)
	c := &chaos{s: s, rng: rand.New(rand.NewPCG(seed, 1)), count: make(map[string]int)}
	w := &watch{}
	months, err := s.storm(ctx, t, c, w, lasting, month, seed)
	if err != nil {
		return err
	}
	if err := s.settle(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
	}
	wrong, err := s.compare(ctx, os.Stdout, t)
	if err != nil {
		return err
	}
	fmt.Printf("\n%d calls, %d answered unavailable, %d months, seed %d\n\n", t.calls.Load(), t.away.Load(), months, seed)
	for _, k := range slices.Sorted(maps.Keys(c.count)) {
		fmt.Printf("- %s: %d\n", k, c.count[k])
	}
	fmt.Println()
	w.print(os.Stdout)
	if wrong > 0 {
		return fmt.Errorf("%d accounts: %w", wrong, errDisagree)
	}
	return nil
}

func (s *stack) subscribeAll(ctx context.Context, t *traffic) error {
	prices, err := s.prices(ctx)
	if err != nil {
		return err
	}
	for i := range 8 {
		a := &account{id: fmt.Sprintf("account-%d", i)}
		if i >= 3 {
			if a.customer, err = s.subscribe(ctx, a.id, prices); err != nil {
				return err
			}
		}
		t.accounts = append(t.accounts, a)
	}
	return until(ctx, "the plans of all subscribers", func() bool {
		var n int
		err := s.db.QueryRow(ctx, "SELECT count(*) FROM weir.accounts WHERE plan = 'pro'").Scan(&n)
		return err == nil && n == 5
	})
}

// storm is traffic and faults for a while, months passing meanwhile; it ends with everything running.
func (s *stack) storm(ctx context.Context, t *traffic, c *chaos, w *watch, lasting, month time.Duration, seed uint64) (months int, err error) {
	stormy, calm := context.WithTimeout(ctx, lasting)
	defer calm()
	var all sync.WaitGroup
	all.Go(func() { t.run(stormy, s.nodes, seed) })
	all.Go(func() { w.run(stormy, s) })
	failed := make(chan error, 1)
	all.Go(func() {
		if err := c.run(stormy); err != nil {
			failed <- err
			calm()
		}
	})
	for pause(stormy, month); stormy.Err() == nil; pause(stormy, month) {
		months++
		at := begins().AddDate(0, months, 0)
		if err := s.setClock(ctx, at.Add(5*time.Minute)); err != nil {
			calm()
			all.Wait()
			return months, err
		}
		pause(stormy, month/4)
		if err := s.setClock(ctx, at.Add(2*time.Hour)); err != nil {
			calm()
			all.Wait()
			return months, err
		}
	}
	all.Wait()
	select {
	case err := <-failed:
		return months, err
	default:
	}
	for _, p := range append([]*process{s.worker}, s.nodes...) {
		p.cable.set(false)
	}
	return months, s.allReady(ctx)
}

// settle lets the last months end and waits until all books are closed.
func (s *stack) settle(ctx context.Context) error {
	now := s.clock.Now()
	next := begins()
	for !next.After(now) {
		next = next.AddDate(0, 1, 0)
	}
	first := time.Date(next.Year(), next.Month()+1, 1, 0, 0, 0, 0, time.UTC) // free plans: the calendar month
	for _, at := range []time.Time{next.Add(5 * time.Minute), next.Add(2 * time.Hour), first.Add(5 * time.Minute), first.Add(3 * time.Hour), first.Add(4 * 24 * time.Hour)} {
		if err := s.setClock(ctx, at); err != nil {
			return err
		}
		pause(ctx, 5*time.Second)
	}
	return until(ctx, "closed books", func() bool { return s.settled(ctx) })
}

// lastWords prints the ends of the logs.
func (s *stack) lastWords() {
	for _, p := range append([]*process{s.worker}, s.nodes...) {
		if p == nil {
			continue
		}
		data, err := os.ReadFile(p.log)
		if err == nil {
			fmt.Fprintf(os.Stderr, "\n%s\n%s\n", p.log, data[max(0, len(data)-3000):])
		}
	}
}
