package enforcer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/internal/journal"
	"github.com/weirhq/weir/internal/schematest"
	"github.com/weirhq/weir/plans"
	"github.com/weirhq/weir/usage"
)

// stage runs the protocol step by step: real enforcers without their loops, a real database, and every step, answer and
// death chosen by rapid.
type stage struct {
	t       *rapid.T
	db      *pgxpool.Pool
	dir     string
	account string
	id      int64
	nodes   []*actor
	ended   []int64 // node ids whose processes are gone
	made    int

	admitted int64 // units that callers were told of
	ceiling  int64
	highest  int64
	cells    cellRule
	excess   int64 // what the stated exceptions of I1 may have added
}

type actor struct {
	e    *Enforcer
	lose bool
	gone bool
}

const stageFeature = "events"

func (s *stage) start() {
	e, err := New(s.db, &Config{JournalDir: filepath.Join(s.dir, fmt.Sprint("node-", s.made)), Logger: slog.New(slog.DiscardHandler), MaxWait: 10 * time.Millisecond})
	require.NoError(s.t, err)
	s.made++
	e.cellRule = s.cells
	a := &actor{e: e}
	e.exchanges.fail = func() error {
		if a.lose {
			a.lose = false
			return errors.New("the answer was lost")
		}
		return nil
	}
	e.life, e.end = context.WithCancel(context.Background())
	e.db = s.db
	require.NoError(s.t, e.begin(context.Background()))
	e.started.Store(true)
	e.running.Store(true)
	s.nodes = append(s.nodes, a)
}

func (s *stage) pick() *actor {
	live := s.nodes[:0:0]
	for _, a := range s.nodes {
		if !a.gone {
			live = append(live, a)
		}
	}
	if len(live) == 0 {
		s.start()
		return s.nodes[len(s.nodes)-1]
	}
	return live[rapid.IntRange(0, len(live)-1).Draw(s.t, "node")]
}

// settled waits until what the step began is over.
func (a *actor) settled() { a.e.tasks.Wait() }

func (s *stage) consume() {
	a := s.pick()
	n := rapid.Int64Range(1, 40).Draw(s.t, "units")
	a.e.awayFlag.Store(false)
	d, err := a.e.Consume(context.Background(), s.account, stageFeature, n)
	require.NoError(s.t, err)
	if d.Allowed {
		s.admitted += n
	}
	a.settled()
}

func (s *stage) reserve() {
	a := s.pick()
	n := rapid.Int64Range(1, 40).Draw(s.t, "units")
	used := rapid.Int64Range(0, n).Draw(s.t, "used")
	a.e.awayFlag.Store(false)
	r, err := a.e.Reserve(context.Background(), s.account, stageFeature, n)
	if err == nil {
		_, err = r.Settle(context.Background(), used)
		require.NoError(s.t, err)
		s.admitted += used
	}
	a.settled()
}

func (s *stage) loseAnswer() { s.pick().lose = true }

func (s *stage) flush() {
	a := s.pick()
	require.NoError(s.t, a.e.flush(context.Background()))
	a.settled()
}

// repeatBatch sends a batch whose answer the node never sees, so that it sends the same again.
func (s *stage) repeatBatch() {
	a := s.pick()
	changed := a.e.collect()
	b := usage.Batch{Node: a.e.node, At: a.e.clock.time(), Sealed: a.e.clock.time().Add(-time.Hour)}
	for _, c := range changed {
		b.Keys, b.Upto = append(b.Keys, c.key()), append(b.Upto, c.total())
	}
	_, err := usage.Flush(context.Background(), s.db, b)
	require.NoError(s.t, err)
	for _, c := range changed {
		a.e.markDirty(c)
	}
}

func (s *stage) fold() {
	_, err := usage.Fold(context.Background(), s.db, rapid.IntRange(1, 5).Draw(s.t, "rows"))
	require.NoError(s.t, err)
}

// recall delivers the notices that the nodes' listeners would have.
func (s *stage) recall() {
	a := s.pick()
	a.e.awayFlag.Store(false)
	a.e.byKey.each(func(c *counter) {
		a.e.recalled(c.key())
	})
	a.settled()
}

func (s *stage) returned() { s.pick().e.forgetRefusals() }

func (s *stage) extend() {
	a := s.pick()
	a.e.awayFlag.Store(false)
	a.e.byKey.each(func(c *counter) {
		if a.e.clock.now() < c.end.Load() && c.tryLock() {
			ex := c.operation(request{}, a.e.want(c), false)
			a.e.exchanges.submit(ex)
			<-ex.done
		}
	})
	a.settled()
}

func (s *stage) fence() {
	a := s.pick()
	a.e.fence()
	a.settled()
	a.e.fenced.Store(false)
}

// kill ends a process between two steps; its journal stays.
func (s *stage) kill() {
	a := s.pick()
	a.gone = true
	a.e.drain()
	require.NoError(s.t, a.e.journal.Close(false))
	s.ended = append(s.ended, a.e.node)
}

func (s *stage) recover() {
	dirs, err := filepath.Glob(filepath.Join(s.dir, "node-*"))
	require.NoError(s.t, err)
	inst, err := usage.ReadInstallation(context.Background(), s.db)
	require.NoError(s.t, err)
	for _, dir := range dirs {
		problems, err := journal.Recover(context.Background(), dir, inst.ID, func(ctx context.Context, d journal.Dead) error {
			_, err := usage.RecoverNode(ctx, s.db, d.Node, entries(d), time.Now())
			return err
		})
		require.NoError(s.t, err)
		require.Empty(s.t, problems)
	}
}

// reap takes a node for dead that is not: what it goes on to spend is an exception of I1, at most what it holds.
func (s *stage) reap() {
	a := s.pick()
	nodes, err := usage.Nodes(context.Background(), s.db)
	require.NoError(s.t, err)
	for _, n := range nodes {
		if n.ID != a.e.node {
			continue
		}
		s.excess += s.outstanding(a)
		_, err := usage.Reap(context.Background(), s.db, n.ID, n.Heartbeat)
		require.NoError(s.t, err)
	}
}

// outstanding is what a node may still spend, or has spent and not stored.
func (s *stage) outstanding(a *actor) int64 {
	var sum int64
	a.e.byKey.each(func(c *counter) {
		c.mu.Lock()
		sum += c.left() + c.total() - c.acked
		c.mu.Unlock()
	})
	return sum
}

// rejoin lets the node's next heartbeat find out.
func (s *stage) rejoin() {
	a := s.pick()
	require.NoError(s.t, a.e.flush(context.Background()))
	a.settled()
	require.NoError(s.t, a.e.flush(context.Background()))
	a.settled()
}

func (s *stage) stop() {
	a := s.pick()
	a.gone = true
	// Stop closes the pool, which is the test's here: leave as Stop does.
	var keys, upto []int64
	a.e.byKey.each(func(c *counter) {
		c.seal()
		keys, upto = append(keys, c.key()), append(upto, c.total())
	})
	a.e.drain()
	require.NoError(s.t, a.e.leave(context.Background(), keys, upto))
	require.NoError(s.t, a.e.journal.Close(true))
	s.ended = append(s.ended, a.e.node)
}

func (s *stage) retire() {
	for _, id := range s.ended {
		_, err := usage.Retire(context.Background(), s.db, id)
		require.NoError(s.t, err)
	}
}

// change raises or lowers the ceiling. What was granted above a lowered one may still be spent until nodes answer.
func (s *stage) change() {
	n := rapid.Int64Range(0, 600).Draw(s.t, "included")
	var granted int64
	require.NoError(s.t, s.db.QueryRow(context.Background(), "SELECT coalesce(max(q.granted), 0) FROM weir.quotas q JOIN weir.keys k USING (key) WHERE k.account_id = $1", s.id).Scan(&granted))
	s.highest = max(s.highest, granted)
	o := usage.Override{Included: &n, Reason: "test", Actor: "test"}
	require.NoError(s.t, usage.SetOverride(context.Background(), s.db, s.id, stageFeature, o, time.Now()))
	s.ceiling, s.highest = n, max(s.highest, n)
	for _, a := range s.nodes {
		if !a.gone {
			require.NoError(s.t, a.e.applyChanges(context.Background()))
			a.settled()
		}
	}
}

// check holds the invariants against the database and the nodes.
func (s *stage) check() {
	ctx := context.Background()
	var wrong int
	require.NoError(s.t, s.db.QueryRow(ctx, `SELECT count(*) FROM weir.quotas q
		WHERE q.granted <> coalesce((SELECT sum(l.lim) FROM weir.leases l WHERE l.key = q.key), 0)`).Scan(&wrong))
	require.Zero(s.t, wrong, "granted is the sum of the leases")
	require.LessOrEqual(s.t, s.admitted, s.highest+s.excess, "I1: never oversold")
	for _, a := range s.nodes {
		if a.gone {
			continue
		}
		a.e.byKey.each(func(c *counter) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.ver >= 0 { // else the stored lease is another one, and the next operation adopts it
				require.Equal(s.t, c.lim+c.over, c.total()+c.left()+c.held()+c.back, "lim + over = total + left + held + back")
			}
			require.GreaterOrEqual(s.t, c.back, int64(0))
			require.GreaterOrEqual(s.t, c.over, int64(0))
		})
	}
}

// finish brings everything in and compares: nothing is lost, nothing is counted twice.
func (s *stage) finish() {
	for _, a := range s.nodes {
		if !a.gone {
			a.e.awayFlag.Store(false)
			require.NoError(s.t, a.e.flush(context.Background()))
			a.settled()
			require.NoError(s.t, a.e.flush(context.Background()))
			a.settled()
		}
	}
	s.recover()
	for {
		n, err := usage.Fold(context.Background(), s.db, 5000)
		require.NoError(s.t, err)
		if n == 0 {
			break
		}
	}
	all, err := usage.Totals(context.Background(), s.db, s.account, time.Time{})
	require.NoError(s.t, err)
	var stored, folded int64
	for _, x := range all {
		stored, folded = stored+x.Used, folded+x.Folded
		require.Equal(s.t, x.Folded, x.Free+x.Overage)
	}
	require.Equal(s.t, s.admitted, stored, "I3 and I4: what was admitted is what is stored")
	require.Equal(s.t, stored, folded)
}

func TestAnyInterleavingOfTheProtocolKeepsTheInvariants(t *testing.T) {
	t.Parallel()
	pool := schematest.Pool(t)
	catalog, err := plans.Parse([]byte("currency: usd\ndefault_plan: free\nfeatures: {events: {}}\nplans: {free: {quota: {events: 300}, on_exceeded: block}}\n"))
	require.NoError(t, err)
	_, _, err = usage.Publish(t.Context(), pool, catalog, "test", time.Now())
	require.NoError(t, err)
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		dir, err := os.MkdirTemp(t.TempDir(), "run-")
		require.NoError(rt, err)
		s := &stage{
			t: rt, db: pool, dir: dir, account: fmt.Sprint("acme-", run), ceiling: 300, highest: 300,
			cells: rapid.SampledFrom([]cellRule{usualCells, attack}).Draw(rt, "cells"),
		}
		s.start()
		s.consume()
		s.id, err = usage.FindAccount(t.Context(), pool, s.account, true, time.Now())
		require.NoError(rt, err)
		s.start()
		steps := map[string]func(*rapid.T){"": func(*rapid.T) { s.check() }}
		for name, f := range map[string]func(){
			"consume": s.consume, "consume more": s.consume, "reserve": s.reserve, "lose an answer": s.loseAnswer, "flush": s.flush,
			"repeat a batch": s.repeatBatch, "fold": s.fold, "recall": s.recall, "returned": s.returned, "extend": s.extend, "fence": s.fence,
			"kill": s.kill, "recover": s.recover, "reap": s.reap, "rejoin": s.rejoin, "stop": s.stop, "retire": s.retire, "change": s.change,
		} {
			steps[name] = func(*rapid.T) { f() }
		}
		rt.Repeat(steps)
		s.finish()
		for _, a := range s.nodes {
			if !a.gone {
				a.e.drain()
				_ = a.e.journal.Close(true)
				_, _ = usage.MoveNode(t.Context(), pool, a.e.node, "live", "stopped")
			}
		}
	})
}
