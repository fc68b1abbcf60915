package enforcer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/puzpuzpuz/xsync/v4"

	"github.com/weirhq/weir/internal/journal"
	"github.com/weirhq/weir/internal/schema"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/ratelimit"
	"github.com/weirhq/weir/usage"
)

// fenceMargin is how long before its lease time a silent node sets its leases aside.
const fenceMargin = 5 * time.Second

// poolSize is the enforcer's own pool: statements in flight, and one connection that a flush always finds.
const poolSize = exchangeLanes + contactLanes + 1

var (
	errNoAnswer    = errors.New("the database has not answered in time")
	errShortAnswer = errors.New("the database answered for fewer keys than it was asked for")
)

// Enforcer decides and counts. Make it with New; it is safe for concurrent use between Start and Stop.
type Enforcer struct {
	cfg          Config
	pool         *pgxpool.Pool // the host's; its configuration is copied
	db           *pgxpool.Pool // ours
	listenConfig *pgx.ConnConfig
	clock        *coarse
	journal      *journal.Journal
	exchanges    *exchanges
	contacts     *contacts
	rates        rates
	terms        shared
	cellRule     cellRule
	sightings    sightings

	node         int64
	nodeText     string
	installation [16]byte
	leaseTime    time.Duration
	unrecovered  bool // the database refused a journal at the start

	accounts *xsync.Map[string, *account]
	byKey    registry
	features atomic.Pointer[features]
	catalog  atomic.Pointer[plans.Catalog]
	stale    atomic.Bool // the catalog must be read again

	seen     atomic.Int64 // the change number that is being applied, or was
	behindMu sync.Mutex
	behind   map[*account]bool // loaded under an older number than seen: the changer reads them again
	reading  map[*account]bool // the changer reads them at the moment

	dirty   atomic.Pointer[counter]
	extends chan *counter

	dueMu  sync.Mutex
	due    dueHeap
	sealed int64      // every counter with an earlier end is sealed
	ended  []*counter // sealed, and not yet stored

	applied    atomic.Int64 // change number
	nodes      atomic.Int64 // live ones
	heartbeat  atomic.Int64 // the number of the last heartbeat that was stored
	unsettled  atomic.Bool  // the database has lost commits, and not everything is stored again
	lastBeat   atomic.Int64 // monotonic: when the last answered heartbeat was sent
	lastAnswer atomic.Int64 // monotonic
	awayFlag   atomic.Bool
	awaySaid   atomic.Int64
	fenced     atomic.Bool
	rejoining  atomic.Bool
	returning  atomic.Bool // what was idle is being given back

	reserved atomic.Int64  // open reservations
	idle     chan struct{} // the last one has ended

	flushing chan struct{}
	kicked   chan struct{}
	changed  chan struct{}

	warned      chan struct{}
	lastWarning int64 // the warner's

	lifecycle sync.Mutex
	started   atomic.Bool
	running   atomic.Bool
	stopped   bool
	life      context.Context
	end       context.CancelFunc
	tasks     sync.WaitGroup
	spawning  sync.Mutex
	ending    bool // no further tasks; guarded by spawning
	stats     stats
}

// New validates the configuration and starts nothing. The pool's configuration is copied for a small pool of the
// enforcer's own, so that the host's transactions never starve it; the pool itself must not be nil.
func New(pool *pgxpool.Pool, cfg *Config) (*Enforcer, error) {
	if pool == nil {
		return nil, errors.New("new enforcer: a connection pool is needed")
	}
	if cfg == nil {
		cfg = &Config{}
	}
	ready, err := cfg.prepare()
	if err != nil {
		return nil, fmt.Errorf("new enforcer: %w", err)
	}
	e := &Enforcer{
		cfg: ready, pool: pool, clock: newCoarse(ready.Clock),
		accounts: xsync.NewMap[string, *account](),
		extends:  make(chan *counter, 1024),
		idle:     make(chan struct{}, 1),
		flushing: make(chan struct{}, 1), kicked: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		warned: make(chan struct{}, 1), behind: make(map[*account]bool),
		cellRule: usualCells,
	}
	e.exchanges, e.contacts = &exchanges{e: e}, &contacts{e: e}
	e.rates.limiter = ratelimit.New(0)
	e.features.Store(&features{})
	e.listenConfig = pool.Config().ConnConfig
	if ready.ListenURL != "" {
		if e.listenConfig, err = pgx.ParseConfig(ready.ListenURL); err != nil {
			return nil, fmt.Errorf("new enforcer: ListenURL: %w", err)
		}
	}
	return e, nil
}

// Start registers this node, recovers what dead processes left in the journal's folder, and begins to answer. ctx
// bounds the start only. It fails when the database can't be reached, has no schema (schema.ErrNotMigrated names the
// command) or another version, or has no catalog and Config.Plans is nil (usage.ErrNoCatalog): without plans there is no
// policy to answer by. It may then be called again; until it has succeeded calls fail with ErrUnavailable, which
// Middleware answers 503, so a host whose database or plans may come later serves and tries on. After Stop it fails.
func (e *Enforcer) Start(ctx context.Context) (err error) {
	e.lifecycle.Lock()
	defer e.lifecycle.Unlock()
	if e.stopped {
		return fmt.Errorf("start enforcer: it was stopped: %w", ErrUnavailable)
	}
	if e.started.Load() {
		return nil
	}
	config := e.pool.Config().Copy()
	config.MaxConns, config.MinConns, config.MinIdleConns = poolSize, 0, 0
	if e.db, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return fmt.Errorf("start enforcer: %w", err)
	}
	e.life, e.end = context.WithCancel(context.Background())
	if err := e.begin(ctx); err != nil {
		e.end()
		e.db.Close()
		return fmt.Errorf("start enforcer: %w", err)
	}
	e.started.Store(true)
	e.running.Store(true)
	for _, task := range []func(){e.ticker, e.flushLoop, e.extender, e.changer, e.listener} {
		e.spawn(task)
	}
	if e.cfg.OnWarning != nil {
		e.spawn(e.warner)
	}
	if e.unrecovered {
		e.spawn(e.recoverer)
	}
	e.changesSoon() // what changed between registration and now
	return nil
}

func (e *Enforcer) begin(ctx context.Context) error {
	if err := schema.Check(ctx, e.db); err != nil {
		return err
	}
	inst, err := usage.ReadInstallation(ctx, e.db)
	if err != nil {
		return err
	}
	e.installation, e.leaseTime = inst.ID, inst.LeaseTime
	asked := e.clock.elapsed()
	now, err := usage.Now(ctx, e.db)
	if err != nil {
		return err
	}
	e.clock.begin(now, asked, e.clock.elapsed())
	if err := e.firstCatalog(ctx); err != nil {
		return err
	}
	if err := e.beginWarnings(ctx); err != nil {
		return err
	}
	if !e.cfg.NoJournal {
		if e.unrecovered, err = e.recover(ctx); err != nil {
			return err
		}
	}
	return e.enroll(ctx, inst)
}

// enroll registers the node and opens its journal. A registration that came to nothing is ended, now or by the next start.
func (e *Enforcer) enroll(ctx context.Context, inst usage.Installation) error {
	if err := e.withdraw(ctx); err != nil {
		return err
	}
	var at time.Time
	if e.cfg.Clock != nil {
		at = e.clock.time()
	}
	sent := e.clock.elapsed()
	n, err := usage.Register(ctx, e.db, e.cfg.Name, e.cfg.Version, at)
	e.node, e.nodeText = n.ID, strconv.FormatInt(n.ID, 10)
	if err == nil {
		e.clock.learn(n.Clock, sent, e.clock.elapsed())
		e.applied.Store(n.Change)
		e.sealed = n.Clock.UnixNano()
		e.nodes.Store(1)
		e.lastBeat.Store(int64(sent))
		e.noteAnswer()
		err = e.readCatalog(ctx) // one that was published meanwhile is older than n.Change
	}
	if err == nil {
		err = e.openJournal(inst)
	}
	if err != nil { // the start's time may be up
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exchangeTimeout)
		defer cancel()
		_ = e.withdraw(ctx)
	}
	return err
}

// withdraw ends the registration of a start that failed, if there is one. Nothing was counted under it.
func (e *Enforcer) withdraw(ctx context.Context) error {
	if e.node == 0 {
		return nil
	}
	for _, from := range []string{"live", "reaped"} {
		if _, err := usage.MoveNode(ctx, e.db, e.node, from, "stopped"); err != nil {
			return err
		}
	}
	e.node = 0
	return nil
}

func (e *Enforcer) openJournal(inst usage.Installation) (err error) {
	if e.cfg.NoJournal {
		e.journal = journal.Heap()
		return nil
	}
	e.journal, err = journal.Open(journal.Config{Dir: e.cfg.JournalDir, Installation: inst.ID, Node: e.node, Logger: e.cfg.Logger})
	return err
}

// firstCatalog reads the catalog that counts, or publishes the configured one where there is none.
func (e *Enforcer) firstCatalog(ctx context.Context) error {
	p, err := usage.LatestCatalog(ctx, e.db)
	if errors.Is(err, usage.ErrNoCatalog) && e.cfg.Plans != nil {
		at := e.clock.time()
		if _, _, err := usage.Publish(ctx, e.db, e.cfg.Plans, e.cfg.Name, at); err != nil {
			return err
		}
		p, err = usage.LatestCatalog(ctx, e.db)
	}
	if err != nil {
		return err
	}
	if e.cfg.Plans != nil && e.cfg.Plans.Hash() != p.Hash {
		e.cfg.Logger.Warn("weir: the configured plans differ from the published catalog, which counts",
			"catalog", p.Number, "differs", differences(e.cfg.Plans, p.Catalog))
	}
	return e.setCatalog(p)
}

func (e *Enforcer) setCatalog(p usage.Published) error {
	c := p.Catalog
	if err := e.rates.set(c); err != nil {
		return err
	}
	names := make([]string, 0, len(c.Features()))
	for _, f := range c.Features() {
		names = append(names, f.Name)
	}
	e.features.Store(e.features.Load().with(append(names, p.Known...)))
	e.catalog.Store(c)
	return nil
}

// differences names the plans that two catalogs do not share.
func differences(mine, published *plans.Catalog) []string {
	var names []string
	seen := make(map[string]bool)
	for _, p := range append(mine.Plans(), published.Plans()...) {
		if seen[p.Name] {
			continue
		}
		seen[p.Name] = true
		a, inMine := mine.Plan(p.Name)
		b, inPublished := published.Plan(p.Name)
		if inMine != inPublished || fmt.Sprint(a) != fmt.Sprint(b) {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		names = append(names, "settings outside the plans")
	}
	return names
}

// ticker moves the coarse clock and watches the fence.
func (e *Enforcer) ticker() {
	t := time.NewTicker(tickEvery)
	defer t.Stop()
	for {
		select {
		case <-e.life.Done():
			return
		case <-t.C:
		}
		e.clock.tick()
		if time.Duration(e.clock.mono.Load()-e.lastBeat.Load()) > e.leaseTime-fenceMargin {
			e.fence()
		}
	}
}

// spawn runs f beside the caller, and reports false when the enforcer is ending: then f did not run.
func (e *Enforcer) spawn(f func()) bool {
	e.spawning.Lock()
	defer e.spawning.Unlock()
	if e.ending {
		return false
	}
	e.tasks.Go(f)
	return true
}

// drain ends what runs beside the callers, and waits for it.
func (e *Enforcer) drain() {
	e.end()
	e.spawning.Lock()
	e.ending = true
	e.spawning.Unlock()
	e.tasks.Wait()
}

func (e *Enforcer) kick() {
	select {
	case e.kicked <- struct{}{}:
	default:
	}
}

func (e *Enforcer) jitter() float64 { return rand.Float64() }

// judges reports whether this node's own heartbeats are answered, so that it can tell which others are silent.
func (e *Enforcer) judges() bool {
	return time.Duration(e.clock.mono.Load()-e.lastBeat.Load()) < 5*time.Second
}

func (e *Enforcer) noteAnswer() { e.lastAnswer.Store(e.clock.mono.Load()) }

func (e *Enforcer) silentFor() time.Duration {
	return time.Duration(e.clock.mono.Load() - e.lastAnswer.Load())
}

// noteAway remembers that the database does not answer, until a heartbeat is answered: calls do not wait meanwhile.
func (e *Enforcer) noteAway(err error) {
	if e.life.Err() == nil && err != nil {
		e.awayFlag.Store(true)
	}
}

func (e *Enforcer) isAway() bool { return e.awayFlag.Load() || e.fenced.Load() }

// warnAway allows a line in the log about an absent database every ten seconds.
func (e *Enforcer) warnAway() bool {
	mono := e.clock.mono.Load()
	last := e.awaySaid.Load()
	return (last == 0 || mono-last > int64(10*time.Second)) && e.awaySaid.CompareAndSwap(last, mono+1)
}
