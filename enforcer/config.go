package enforcer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/weirhq/weir/internal/journal"
	"github.com/weirhq/weir/plans"
)

// Config configures an Enforcer. The zero value is usable: every field has a default.
type Config struct {
	// Plans is published as the first catalog of a database that has none. Afterwards the database's catalog counts;
	// a difference is logged. Nil: the database must have one.
	Plans *plans.Catalog
	// JournalDir is where counters are kept in files that survive the process. Default: $STATE_DIRECTORY, else the
	// user's state folder.
	JournalDir string
	// NoJournal keeps counters on the heap: what was not flushed is lost with the process.
	NoJournal bool
	// FlushInterval is how often usage is sent, 50 ms to 1 min. Default 1 s.
	FlushInterval time.Duration
	// ListenURL connects the notification listener directly, for those whose pool goes through a transaction pooler.
	// Default: the pool's own address.
	ListenURL string
	// Clock replaces the database's clock. For tests and simulations.
	Clock Clock
	// Logger receives what operators need to know. Default: slog.Default().
	Logger *slog.Logger
	// Name names this node to people. Default: the host's name and the process id.
	Name string
	// MaxWait bounds how long a call may wait for the database or for other nodes, 10 ms to 10 s. Default 250 ms.
	MaxWait time.Duration
	// Version of the host program, shown beside the node.
	Version string
	// OnWarning is called, on every node, for each threshold of an allowance that an account reaches from the start on:
	// one call at a time, off the path of Consume. Its context ends when Stop begins to end this node's tasks, which
	// waits for the call. Nil: nothing is read.
	OnWarning func(context.Context, Warning)
}

const (
	defaultFlushInterval = time.Second
	defaultMaxWait       = 250 * time.Millisecond
	heartbeatEvery       = time.Second
	firstContactWait     = 2 * time.Second
	minLease             = 256  // units that a lease asks for at least
	minFirstLease        = 1024 // and a first one: a burst of callers is answered by one query
	openLease            = 1_000_000
)

// prepare checks the configuration, says everything that is wrong with it at once, and fills the defaults.
func (c Config) prepare() (Config, error) {
	var wrong []error
	if c.FlushInterval == 0 {
		c.FlushInterval = defaultFlushInterval
	}
	if c.FlushInterval < 50*time.Millisecond || c.FlushInterval > time.Minute {
		wrong = append(wrong, fmt.Errorf("FlushInterval is %s: use 50ms to 1m", c.FlushInterval))
	}
	if c.MaxWait == 0 {
		c.MaxWait = defaultMaxWait
	}
	if c.MaxWait < 10*time.Millisecond || c.MaxWait > 10*time.Second {
		wrong = append(wrong, fmt.Errorf("MaxWait is %s: use 10ms to 10s", c.MaxWait))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		c.Name = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	if len(c.Name) > 255 {
		wrong = append(wrong, fmt.Errorf("Name has %d bytes: use at most 255", len(c.Name)))
	}
	if c.NoJournal && c.JournalDir != "" {
		wrong = append(wrong, errors.New("JournalDir and NoJournal exclude each other: set one"))
	}
	if !c.NoJournal && c.JournalDir == "" {
		dir, err := journal.DefaultDir()
		if err != nil {
			wrong = append(wrong, fmt.Errorf("JournalDir: %w", err))
		}
		c.JournalDir = dir
	}
	return c, errors.Join(wrong...)
}
