package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/enforcer"
	"github.com/weirhq/weir/internal/settings"
	"github.com/weirhq/weir/usage"
)

const (
	startTime     = 15 * time.Second // for one try
	patience      = 2 * time.Second  // then who waits is told where calls are answered, whatever becomes of the first try
	firstPause    = 250 * time.Millisecond
	longestPause  = 5 * time.Second
	noticeToServe = "The enforcer starts and has not reached the database yet. It tries again by itself; its log says what it met."
	noticeOfPlans = "The enforcer starts, and no plan file is published yet: run `worker serve --plans FILE` or `worker plans apply --plans FILE`. It looks again by itself."
)

// starter brings the enforcer up while calls are answered already, and tells whether it is.
type starter struct {
	enforcer *enforcer.Enforcer
	logger   *slog.Logger
	notReady atomic.Pointer[string]
	decides  atomic.Bool // the enforcer has started
}

func newStarter(e *enforcer.Enforcer, logger *slog.Logger) *starter {
	s := &starter{enforcer: e, logger: logger}
	s.say(noticeToServe)
	return s
}

func (s *starter) say(why string) { s.notReady.Store(&why) }

// why says why calls can't be decided; "" when they can.
func (s *starter) why() string { return *s.notReady.Load() }

// run starts the enforcer, again and again while the database is away or has no plans, and then waits for ctx. What no
// waiting mends is an error. announce is called once, unless the first try ends in such an error: a process that is about to end says
// nothing else.
func (s *starter) run(ctx context.Context, announce func()) error {
	announce = sync.OnceFunc(announce)
	late := time.AfterFunc(patience, announce)
	defer late.Stop()
	pause := firstPause
	for {
		err := s.try(ctx)
		switch {
		case err == nil:
			s.decides.Store(true)
			s.say("")
			announce()
			s.logger.Info("the enforcer decides", "node", s.enforcer.Stats().Node)
			<-ctx.Done()
			return nil
		case ctx.Err() != nil:
			return nil // the process was told to end while it tried
		case errors.Is(err, usage.ErrNoCatalog): // who publishes one may start later
			s.say(noticeOfPlans)
			s.logger.Warn("no plans are published; calls are answered 503 meanwhile", "error", err, "again_in", pause)
		case settings.Away(err):
			s.say(noticeToServe)
			s.logger.Warn("the database is away; calls are answered 503 meanwhile", "error", err, "again_in", pause)
		default:
			return settings.Mend(err)
		}
		announce()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, longestPause)
	}
}

func (s *starter) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	return s.enforcer.Start(ctx)
}
