// Command sandboxcheck tries at a Stripe test account of one's own what only Stripe can answer; scripts/sandbox-check
// runs it. docs/sandbox-checklist.md says what it tries.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/sandbox"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := sandbox.Check(ctx, sandbox.Config{
		Key: os.Getenv("STRIPE_API_KEY"), Base: os.Getenv("STRIPE_API_BASE"), Name: strings.ToLower(rand.Text()[:8]), Out: os.Stdout,
		HTTP: &http.Client{Timeout: 30 * time.Second}, Lag: 15 * time.Minute, Poll: 10 * time.Second,
	})
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "sandbox-check:", err)
	if errors.Is(err, sandbox.ErrDiffers) {
		return 3
	}
	return 1
}
