package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/weirhq/weir/internal/demo"
)

type demoCmd struct {
	Stay     bool   `help:"Leave everything running for a look around, until Ctrl-C."`
	Seed     uint64 `help:"Repeat the traffic of an earlier run."`
	Enforcer string `placeholder:"FILE" help:"The sidecar's binary. Default: enforcer beside this program."`
	Existing bool   `help:"Use the empty database that DATABASE_URL names, not a private server."`
}

// Run runs the demo. Numbers that do not agree are exit code 3.
func (d demoCmd) Run(c *call) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if d.Enforcer == "" {
		d.Enforcer = filepath.Join(filepath.Dir(self), "enforcer")
	}
	if _, err := os.Stat(d.Enforcer); err != nil {
		return usageError{fmt.Errorf("the sidecar's binary is missing: build both with `make build`, or name it with --enforcer: %w", err)}
	}
	if d.Seed == 0 {
		d.Seed = 1 + rand.Uint64N(1_000_000)
	}
	cfg := demo.Config{Worker: self, Enforcer: d.Enforcer, Stay: d.Stay, Seed: d.Seed, Out: c.out, Color: isTerminal(c.out) && c.env("NO_COLOR") == ""}
	if d.Existing {
		if cfg.DatabaseURL = c.DatabaseURL; cfg.DatabaseURL == "" {
			return usageError{errors.New("--existing needs DATABASE_URL, the URL of an empty database")}
		}
	}
	err = demo.Run(c.ctx, cfg)
	if errors.Is(err, demo.ErrDisagree) {
		return findings{fmt.Errorf("%w (seed %d)", err, d.Seed)}
	}
	return err
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
