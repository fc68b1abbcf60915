// Package sandbox tries at a Stripe test account what no simulator can prove, and says of each thing what it proves and
// what Weir expects. It makes a meter, prices, a customer and a subscription of its own and archives them at the end.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Clock is the time at which the customer lives: a test clock at Stripe, or a simulator's.
type Clock interface {
	// Begin makes the clock and returns its id, empty where a customer needs none, and the instant that it shows.
	Begin(ctx context.Context) (id string, now time.Time, err error)
	// Advance moves it and waits until Stripe has done everything that is due by then.
	Advance(ctx context.Context, to time.Time) error
	// End takes the clock away with all that lives by it, and reports whether the customer went with it.
	End(ctx context.Context) (gone bool, err error)
}

// Config says where to try.
type Config struct {
	Key   string // of a test account: sk_test_ or rk_test_
	Base  string // Stripe's address; empty: https://api.stripe.com
	Clock Clock  // nil: a test clock
	Name  string // of the objects that are made; unique
	Out   io.Writer
	HTTP  *http.Client // required
	// Lag is how long to wait for an event to be in the meter's summary, polling each Poll.
	Lag, Poll time.Duration
}

// ErrDiffers says that Stripe does something else than Weir relies on.
var ErrDiffers = errors.New("Stripe does not do what Weir relies on: see the lines that say DIFFERS")

// Check tries everything, prints a line for each thing, and cleans up. A live key is refused before anything is asked.
func Check(ctx context.Context, cfg Config) (err error) {
	if !strings.HasPrefix(cfg.Key, "sk_test_") && !strings.HasPrefix(cfg.Key, "rk_test_") {
		return errors.New("the key is not one of a test account: it must begin with sk_test_ or rk_test_, and nothing was asked")
	}
	if cfg.Base == "" {
		cfg.Base = "https://api.stripe.com"
	}
	t := &trial{cfg: cfg, stripe: caller{cfg.HTTP, strings.TrimSuffix(cfg.Base, "/"), cfg.Key}}
	if t.cfg.Clock == nil {
		t.cfg.Clock = &testClock{stripe: t.stripe, name: cfg.Name}
	}
	defer func() { err = errors.Join(err, t.cleanUp(context.WithoutCancel(ctx))) }()
	differs := false
	for _, s := range steps {
		_, _ = fmt.Fprintf(cfg.Out, "%s\n    proves:   %s\n    expected: %s\n", s.name, s.proves, s.expects)
		saw, err := s.run(ctx, t)
		var other differing
		switch {
		case errors.As(err, &other):
			differs = true
			_, _ = fmt.Fprintf(cfg.Out, "    DIFFERS:  %s\n", other.what)
		case err != nil:
			return fmt.Errorf("%s: %w", s.name, err)
		default:
			_, _ = fmt.Fprintf(cfg.Out, "    seen:     %s\n", saw)
		}
	}
	if differs {
		return ErrDiffers
	}
	return nil
}

// step is one thing that is tried. run returns what was seen; a differing is what contradicts Weir, any other error
// keeps the rest from being tried.
type step struct {
	name, proves, expects string
	run                   func(ctx context.Context, t *trial) (string, error)
}

type differing struct{ what string }

func (d differing) Error() string { return d.what }

func differ(format string, args ...any) error { return differing{fmt.Sprintf(format, args...)} }

// trial is what was made so far.
type trial struct {
	cfg    Config
	stripe caller

	meter, product, base, metered, second string
	customer, subscription                string
	clock                                 string
	invoice, line                         string    // of the renewal
	began, ends                           time.Time // of the clock, and the period's end
	sent                                  int64     // what the meter should have
}

func (t *trial) event(name string) string { return "weir_check_" + name + "_" + t.cfg.Name }

// cleanUp archives what was made, the last first; it goes on over errors.
func (t *trial) cleanUp(ctx context.Context) error {
	var all []error
	try := func(what, path string, pairs ...string) {
		if what == "" {
			return
		}
		method := http.MethodPost
		if len(pairs) == 1 {
			method, pairs = pairs[0], nil
		}
		a, err := t.stripe.call(ctx, method, path, "", pairs...)
		if err == nil && a.status >= http.StatusBadRequest && a.status != http.StatusNotFound {
			err = fmt.Errorf("%s answers %d: %s", path, a.status, a.message())
		}
		if err != nil {
			all = append(all, fmt.Errorf("clean up: %w", err))
		}
	}
	gone := false
	if t.clock != "" || t.customer != "" {
		var err error
		if gone, err = t.cfg.Clock.End(ctx); err != nil {
			all = append(all, fmt.Errorf("clean up: %w", err))
		}
	}
	if !gone {
		try(t.customer, "/v1/customers/"+t.customer, http.MethodDelete)
	}
	for _, price := range []string{t.second, t.metered, t.base} {
		try(price, "/v1/prices/"+price, "active", "false")
	}
	try(t.product, "/v1/products/"+t.product, "active", "false")
	try(t.meter, "/v1/billing/meters/"+t.meter+"/deactivate")
	if len(all) == 0 {
		_, _ = fmt.Fprintln(t.cfg.Out, "What was made is archived.")
	}
	return errors.Join(all...)
}
