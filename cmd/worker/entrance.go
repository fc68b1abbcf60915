package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/internal/edge/problem"
	"github.com/weirhq/weir/internal/metrics"
	"github.com/weirhq/weir/internal/settings"
	"github.com/weirhq/weir/plans"
)

const (
	startTime    = 40 * time.Second // for one try; a migration has no limit
	patience     = 2 * time.Second  // then who waits is told where calls are answered, whatever becomes of the first try
	firstPause   = 250 * time.Millisecond
	longestPause = 5 * time.Second
)

// entrance answers from the first moment on: for itself while the worker starts, by the worker's routes afterwards.
type entrance struct {
	announce func() // says where calls are answered, once
	starting http.Handler
	ready    atomic.Pointer[http.Handler]
}

var errStarting = errors.New("the worker starts")

// newEntrance makes an entrance of a worker that starts: it is alive, it is not ready, and says why. announce is called
// once, unless the first try to start ends in an error that no waiting mends: a process that is about to end says nothing
// else.
func newEntrance(c *call, announce func()) (*entrance, error) {
	page, err := metrics.NewHTTP(metrics.New(func(context.Context) (metrics.State, error) { return metrics.State{}, errStarting }, c.logger))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", page.Page())
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		readiness{Reason: "the worker starts and has not reached the database yet: it tries again by itself, and its log says what it met"}.write(w) // business time is not known yet
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		problem.New(http.StatusServiceUnavailable, problem.Internal, "Unavailable", "The worker starts. Try again.").Write(w)
	})
	return &entrance{announce: sync.OnceFunc(announce), starting: mux}, nil
}

// open passes calls to the worker's routes from now on.
func (e *entrance) open(routes http.Handler) {
	e.ready.Store(&routes)
	e.announce()
}

// ServeHTTP answers a call.
func (e *entrance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := e.ready.Load(); h != nil {
		(*h).ServeHTTP(w, r)
		return
	}
	e.starting.ServeHTTP(w, r)
}

func alive(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") }

func (a readiness) write(w http.ResponseWriter) {
	status := http.StatusOK
	if !a.Ready {
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a)
}

// start makes the worker and starts its jobs, again and again while the database is away. What no waiting mends is an
// error, and so is the end of ctx.
func (s *serveCmd) start(ctx context.Context, c *call, catalog *plans.Catalog, front *entrance) (*office, error) {
	defer time.AfterFunc(patience, front.announce).Stop()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		o, err := s.try(ctx, c, catalog)
		switch {
		case err == nil:
			return o, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !settings.Away(err):
			return nil, settings.Mend(err)
		}
		front.announce()
		c.logger.Warn("the database is away; the worker tries again by itself", "error", err, "again_in", pause)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// try makes the worker and starts its jobs, once.
func (s *serveCmd) try(ctx context.Context, c *call, catalog *plans.Catalog) (o *office, err error) {
	once := *c
	once.ctx = ctx
	if s.Migrate {
		if err := (migrateCmd{ListenURL: s.ListenURL}).Run(&once); err != nil {
			return nil, err
		}
	}
	var cancel context.CancelFunc
	once.ctx, cancel = context.WithTimeout(ctx, startTime)
	defer cancel()
	pool, err := once.openMigrated()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			pool.Close()
		}
	}()
	if o, err = s.prepare(&once, pool, catalog); err != nil {
		return nil, err
	}
	return o, o.jobs.Start(once.ctx)
}
