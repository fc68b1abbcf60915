package enforcer

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/internal/journal"
)

// attack makes cells of what is there down to the last units, and parks as much in them as it can.
var attack = cellRule{part: 2, least: 1, always: true}

// bare is an enforcer without a database, and a counter of it that has units and cells.
func bare(t *testing.T, rule cellRule, units int64) (*Enforcer, *counter) {
	t.Helper()
	e := &Enforcer{clock: newCoarse(nil), journal: journal.Heap(), extends: make(chan *counter, 1024), cellRule: rule}
	e.life, e.end = context.WithCancel(t.Context())
	e.features.Store(&features{})
	s := &slot{account: &account{name: "acme"}}
	line := e.journal.Take(1, journal.KeyHash("acme", "events", time.Time{}), 0)
	v := &view{conditions: &conditions{terms: &Terms{}, unlimited: true, inPlan: true}}
	c := newCounter(s, v, lease{ver: 1, lim: units}, line)
	c.reaches(1 << 62)
	s.cur.Store(c)
	e.promote(c)
	require.NotNil(t, c.cells())
	return e, c
}

// A word says the same as two numbers that are changed one call after the other.
func TestAWordIsExactUnderAddsThatAreRefused(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.Uint64Range(0, 1<<33).Draw(t, "total before")
		var word atomic.Uint64
		word.Store(uint64(uint32(start)) << 32)
		spent, rest := start, uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"one": func(t *rapid.T) {
				admitted := !empty(word.Add(one))
				require.Equal(t, rest > 0, admitted)
				if admitted {
					spent, rest = spent+1, rest-1
				}
			},
			"many": func(t *rapid.T) {
				n := rapid.Uint64Range(1, 20).Draw(t, "n")
				_, admitted := spend(&word, n)
				require.Equal(t, n <= rest, admitted)
				if admitted {
					spent, rest = spent+n, rest-n
				}
			},
			"credit": func(t *rapid.T) {
				n, more := rapid.Uint64Range(0, 9).Draw(t, "n"), rapid.Uint64Range(0, 30).Draw(t, "more")
				credit(&word, n, more)
				spent, rest = spent+n, rest+more
			},
			"cut":   func(t *rapid.T) { require.Equal(t, rest, cut(&word)); rest = 0 },
			"level": func(*rapid.T) { level(&word) },
			"": func(t *rapid.T) {
				require.Equal(t, rest, left(word.Load()))
				require.EqualValues(t, spent, totalOf(word.Load(), start))
			},
		})
	})
}

// Many callers, big and small, use a counter up while it is cut and filled again all the time. Whoever looks sees a total
// that only grows and never passes what was given; in the end every unit is somewhere.
func TestCutsWhileCellsAreSpentCreateAndLoseNothing(t *testing.T) {
	t.Parallel()
	const units = 5_000_000
	e, c := bare(t, attack, units)
	m := &Meter{e: e, clock: e.clock, slot: c.slot}
	var admitted, cuts atomic.Int64
	done := make(chan struct{})
	var callers, others sync.WaitGroup
	for g := range 4 {
		callers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for admitted.Load() < units {
				n := int64(1)
				if rng.IntN(3) == 0 {
					n += rng.Int64N(60)
				}
				var ok bool
				switch rng.IntN(3) {
				case 0:
					v, _ := e.quick(c.slot, n)
					ok = v != nil
				case 1:
					ok = c.take(e, n)
				default:
					ok = spentBy(m, n)
				}
				if ok {
					admitted.Add(n)
				}
			}
		})
	}
	others.Go(func() { // recalls, fences and grants
		for {
			select {
			case <-done:
				return
			default:
			}
			c.mu.Lock()
			if cuts.Add(1)%2 == 0 {
				c.cut() // until the credit nobody can spend
				if sum := c.total() + c.back; sum != units {
					t.Errorf("%d units of %d after a cut", sum, units)
				}
			} else {
				c.gather()
			}
			credit(c.word(), 0, uint64(c.back))
			c.back = 0
			c.mu.Unlock()
			e.promote(c)
		}
	})
	others.Go(func() { // the flusher
		last := int64(0)
		for {
			select {
			case <-done:
				return
			default:
			}
			now := c.total()
			if now < last || now > units {
				t.Errorf("a total of %d after one of %d", now, last)
				return
			}
			last = now
		}
	})
	callers.Wait()
	close(done)
	others.Wait()
	t.Logf("%d cuts", cuts.Load())
	require.Greater(t, cuts.Load(), int64(100))
	require.EqualValues(t, units, admitted.Load())
	require.EqualValues(t, units, c.total())
	require.Zero(t, c.left())
}

// spentBy is Take without the way to the database.
func spentBy(m *Meter, n int64) bool {
	c := m.slot.cur.Load()
	h := c.cells()
	if n == 1 && h.active.Load() {
		line := h.of(here())
		if empty(line.Word().Add(one)) {
			return c.refill(m.e, h, line, 1)
		}
		return true
	}
	return h.active.Load() && c.spendCell(m.e, h, n)
}

// Near the end units lie in other callers' cells: nobody is refused while they do, and nobody gets one too many.
func TestCellsAreUsedUpToTheUnit(t *testing.T) {
	t.Parallel()
	for run := range 100 {
		const units = 40_000
		e, c := bare(t, attack, units)
		var admitted atomic.Int64
		var callers sync.WaitGroup
		for g := range 4 {
			callers.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(run), uint64(g)))
				for most := int64(30); ; {
					n := 1 + rng.Int64N(most)
					before := c.total() // a refusal of n is false if n were left throughout
					if v, _ := e.quick(c.slot, n); v != nil || c.take(e, n) {
						admitted.Add(n)
						continue
					}
					if n <= 4 && units-before < 4*30 {
						// the last ones, one by one
						most = 1
					}
					if left := units - c.total(); left >= n {
						t.Errorf("%d units were refused while %d were left", n, left)
						return
					}
					if n == 1 {
						return
					}
				}
			})
		}
		callers.Wait()
		require.EqualValues(t, units, admitted.Load())
		require.EqualValues(t, units, c.total())
	}
}

// Refused units are seen by nobody, not even while they are refused.
func TestRefusalsByAddMoveNoTotal(t *testing.T) {
	t.Parallel()
	e, c := bare(t, attack, 0)
	c.mu.Lock()
	credit(c.word(), 7, 0)
	c.mu.Unlock()
	done := make(chan struct{})
	var callers sync.WaitGroup
	var refused atomic.Int64
	for range 4 {
		callers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if v, _ := e.quick(c.slot, 1); v != nil || !empty(c.word().Add(one)) {
					t.Error("admitted")
				}
				level(c.word())
				refused.Add(1)
			}
		})
	}
	for refused.Load() < 200_000 {
		if c.total() != 7 || left(c.word().Load()) != 0 {
			t.Fatalf("total %d, left %d", c.total(), left(c.word().Load()))
		}
	}
	close(done)
	callers.Wait()
	require.EqualValues(t, 7, c.total())
}

func TestTwoCallersOfOneCounterGetCellsAndOneDoesNot(t *testing.T) {
	t.Parallel()
	e, c := bare(t, usualCells, 1<<30)
	c.mu.Lock()
	c.rare.Store(nil)
	c.gate()
	c.mu.Unlock()
	m := &Meter{e: e, clock: e.clock, slot: c.slot}
	for range 100_000 {
		require.True(t, m.Take(1))
	}
	e.tasks.Wait()
	require.Nil(t, c.cells(), "one caller")
	// What the sample would see of two callers in turns.
	for i := range enoughCalls {
		e.sample(c, uintptr(i&1))
	}
	e.tasks.Wait()
	require.NotNil(t, c.cells())
	require.True(t, c.cells().active.Load())
	for range 100_000 {
		require.True(t, m.Take(1))
	}
	require.EqualValues(t, 200_000, c.total())
	c.mu.Lock()
	require.EqualValues(t, 1<<30, c.total()+c.left())
	c.mu.Unlock()
}

func TestCallersThatMeetInACellAreSpreadAnewAndOthersStay(t *testing.T) {
	t.Parallel()
	_, c := bare(t, usualCells, 1<<30)
	h, callers := c.cells(), [2]uintptr{1, 2}
	fill := func(caller uintptr) {
		c.mu.Lock()
		defer c.mu.Unlock()
		h.filled(h.of(caller), caller)
	}
	for together := range uint64(100) {
		for h.of(callers[0]) != h.of(callers[1]) {
			h.mix.Store(together*2654435761 | 1)
			together++
		}
		for i := 0; h.of(callers[0]) == h.of(callers[1]); i++ {
			require.Less(t, i, 1000*enoughFills, "they meet for ever")
			fill(callers[i&1])
		}
		apart := h.mix.Load()
		for i := range 10 * enoughFills {
			fill(callers[i&1])
		}
		require.Equal(t, apart, h.mix.Load(), "each has a cell of its own")
	}
}

func TestAnAccountKeepsTheSlotsOfAllItsFeatures(t *testing.T) {
	t.Parallel()
	a := &account{}
	const features = inRecord + 3*inPiece + 1
	made := make([]*slot, features)
	for i := range made {
		require.Nil(t, a.at(i))
		made[i] = a.slotAt(i)
	}
	for i, s := range made {
		require.Same(t, s, a.at(i))
		require.Same(t, s, a.slotAt(i))
		require.EqualValues(t, i+1, a.featureOf(s))
		require.Same(t, a, s.account)
	}
	require.Nil(t, a.at(features))
	require.Nil(t, a.at(-1), "an unknown feature")
	require.Zero(t, a.featureOf(&slot{account: a}), "a slot of nobody")
	n := 0
	a.each(func(*slot) { n++ })
	require.Equal(t, features, n)
}
