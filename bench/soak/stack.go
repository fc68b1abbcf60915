package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/internal/clock"
	"github.com/weirhq/weir/internal/postgres"
	"github.com/weirhq/weir/internal/stripesim"
	"github.com/weirhq/weir/usage"
)

const planFile = `
currency: usd
default_plan: free
features:
  events: {meter: weir_events_overage}
plans:
  free:
    quota: {events: 10_000}
    on_exceeded: block
  pro:
    prices: [pro_monthly]
    quota:
      events: {included: 20_000, overage: {price: "0.40", per: 1000, max: 5_000_000}}
    on_exceeded: bill_overage
`

const (
	nodeCount  = 3
	hookSecret = "whsec_of_the_soak"
	waitMost   = 2 * time.Minute
)

func begins() time.Time { return time.Date(2027, time.January, 10, 10, 0, 0, 0, time.UTC) }

// stack is everything that runs: each process behind a cable of its own to the database.
type stack struct {
	bin     string
	dir     string
	server  *postgres.Server
	db      *pgxpool.Pool
	clock   *clock.Simulated
	stripe  *stripesim.Server
	at      string // the simulator's address
	worker  *process
	nodes   []*process
	ticking sync.Mutex
	closers []func()
}

// process is a program that is killed and started again under the same address.
type process struct {
	binary string
	args   []string
	env    []string
	log    string
	addr   string
	cable  *cable

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(p.binary, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	return nil
}

// end sends a signal and waits until the process is gone.
func (p *process) end(s os.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(s)
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	p.cmd = nil
}

// revive starts a process that has ended by itself, as a service manager does, and reports whether it had to.
func (p *process) revive() (bool, error) {
	p.mu.Lock()
	if p.cmd == nil {
		p.mu.Unlock()
		return false, nil
	}
	select {
	case <-p.done:
		p.cmd = nil
		p.mu.Unlock()
		return true, p.start()
	default:
		p.mu.Unlock()
		return false, nil
	}
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

func (p *process) ready() bool {
	resp, err := http.Get("http://" + p.addr + "/readyz")
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func newStack(ctx context.Context, bin string) (s *stack, err error) {
	s = &stack{bin: bin, clock: clock.NewSimulated(begins())}
	if s.dir, err = os.MkdirTemp("", "weir-soak-"); err != nil {
		return nil, err
	}
	s.onClose(func() { _ = os.RemoveAll(s.dir) })
	if s.server, err = postgres.Start(ctx, postgres.Options{MaxConnections: 200}); err != nil {
		return s, err
	}
	s.onClose(func() {
		stop, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		_ = s.server.Stop(stop)
	})
	if s.db, err = pgxpool.New(ctx, s.server.URL("postgres")); err != nil {
		return s, err
	}
	s.onClose(s.db.Close)
	s.stripe = stripesim.New(stripesim.Config{Clock: s.clock, MaxMeterEvents: 1_000_000})
	address, stop, err := s.stripe.Listen()
	if err != nil {
		return s, err
	}
	s.at = address
	s.onClose(func() { _ = stop() })
	return s, s.startProcesses(ctx)
}

func (s *stack) startProcesses(ctx context.Context) error {
	plans := filepath.Join(s.dir, "plans.yaml")
	if err := os.WriteFile(plans, []byte(planFile), 0o600); err != nil {
		return err
	}
	var err error
	if s.worker, err = s.process("worker", []string{"serve"},
		"WEIR_PLANS="+plans, "STRIPE_API_KEY="+s.stripe.APIKey(), "STRIPE_API_BASE="+s.at, "STRIPE_WEBHOOK_SECRET="+hookSecret,
		"WEIR_ADMIN_TOKEN=token-of-the-soak", "WEIR_SECRET=a secret of the soak and of nothing else"); err != nil {
		return err
	}
	if out, err := s.run("migrate"); err != nil {
		return fmt.Errorf("migrate: %w: %s", err, out)
	}
	if _, err := s.db.Exec(ctx, "UPDATE weir.installation SET lease_time = interval '20 s'"); err != nil {
		return err
	}
	if err := usage.SimulateClock(ctx, s.db, s.clock.Now()); err != nil {
		return err
	}
	if err := s.sell(ctx); err != nil {
		return err
	}
	if err := s.worker.start(); err != nil {
		return err
	}
	if err := until(ctx, "the worker", s.worker.ready); err != nil { // it publishes the plans
		return err
	}
	s.stripe.AddWebhook(stripesim.Webhook{URL: "http://" + s.worker.addr + "/stripe/webhook", Secret: hookSecret})
	for i := range nodeCount {
		p, err := s.process("enforcer", nil, "WEIR_JOURNAL_DIR="+filepath.Join(s.dir, fmt.Sprint("journal-", i)))
		if err != nil {
			return err
		}
		s.nodes = append(s.nodes, p)
		if err := p.start(); err != nil {
			return err
		}
	}
	running, cancel := context.WithCancel(context.Background())
	s.onClose(cancel)
	go s.tick(running)
	return s.allReady(ctx)
}

func (s *stack) process(name string, args []string, env ...string) (*process, error) {
	c, err := newCable(s.server.URL("postgres"))
	if err != nil {
		return nil, err
	}
	s.onClose(c.close)
	l, err := net.Listen("tcp", "127.0.0.1:0") // a free port, which the process then keeps through its lives
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	p := &process{
		binary: filepath.Join(s.bin, name), args: args, addr: addr, cable: c,
		log: filepath.Join(s.dir, fmt.Sprintf("%s-%s.log", name, addr[strings.LastIndexByte(addr, ':')+1:])),
		env: append(env, "DATABASE_URL="+c.url, "WEIR_ADDR="+addr),
	}
	s.onClose(func() { p.end(os.Interrupt) })
	return p, nil
}

// run runs one command of the worker, past all cables.
func (s *stack) run(args ...string) (string, error) {
	cmd := exec.Command(s.worker.binary, args...)
	cmd.Env = append(append(os.Environ(), s.worker.env...), "DATABASE_URL="+s.server.URL("postgres"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *stack) onClose(f func()) { s.closers = append(s.closers, f) }

func (s *stack) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
}

func (s *stack) tick(ctx context.Context) {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		s.ticking.Lock()
		_ = s.stripe.Tick(ctx) // it fails with ctx alone
		s.ticking.Unlock()
	}
}

// setClock moves business time for everybody: the database's clock, which worker and nodes follow, and the simulator's,
// which waits for the worker.
func (s *stack) setClock(ctx context.Context, at time.Time) error {
	s.ticking.Lock()
	defer s.ticking.Unlock()
	s.clock.Set(at)
	err := until(ctx, "the database", func() bool { return usage.SimulateClock(ctx, s.db, s.clock.Now()) == nil })
	if err != nil {
		return err
	}
	return until(ctx, "the worker's clock", func() bool {
		resp, err := http.Get("http://" + s.worker.addr + "/readyz")
		if err != nil {
			return false
		}
		defer func() { _ = resp.Body.Close() }()
		var answer struct {
			Time time.Time `json:"time"`
		}
		return json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&answer) == nil && !answer.Time.Before(at)
	})
}

func (s *stack) allReady(ctx context.Context) error {
	return until(ctx, "all processes", func() bool {
		for _, p := range append([]*process{s.worker}, s.nodes...) {
			if !p.ready() {
				_, _ = p.revive() // one that can't be started is not ready
				return false
			}
		}
		return true
	})
}

var errWaited = errors.New("waited in vain")

func until(ctx context.Context, what string, yes func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, waitMost)
	defer cancel()
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for !yes() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, errWaited)
		case <-t.C:
		}
	}
	return nil
}

var socketHost = regexp.MustCompile(`host=([^&]+)`)

// cable is a process's connection to the database, which can be cut.
type cable struct {
	url    string
	l      net.Listener
	socket string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
}

func newCable(database string) (*cable, error) {
	m := socketHost.FindStringSubmatch(database)
	if m == nil {
		return nil, fmt.Errorf("no socket in %s", database)
	}
	dir, err := url.PathUnescape(m[1])
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &cable{url: "postgres://postgres@" + l.Addr().String() + "/postgres?sslmode=disable", l: l, socket: filepath.Join(dir, ".s.PGSQL.5432"), conns: make(map[net.Conn]struct{})}
	go c.serve()
	return c, nil
}

func (c *cable) serve() {
	for {
		near, err := c.l.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("unix", c.socket)
		if err != nil || !c.keep(near, far) {
			_ = near.Close()
			if far != nil {
				_ = far.Close()
			}
			continue
		}
		for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
			go func() {
				_, _ = io.Copy(way[0], way[1])
				_, _ = near.Close(), far.Close()
				c.mu.Lock()
				delete(c.conns, near)
				delete(c.conns, far)
				c.mu.Unlock()
			}()
		}
	}
}

func (c *cable) keep(conns ...net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return false
	}
	for _, x := range conns {
		c.conns[x] = struct{}{}
	}
	return true
}

// set cuts the cable, and every connection through it, or mends it.
func (c *cable) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
	for x := range c.conns {
		if cut {
			_ = x.Close()
		}
	}
}

func (c *cable) close() {
	_ = c.l.Close()
	c.set(true)
}
