package usage_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/usage"
)

// modelNode is a node as the protocol has it, without threads: what it holds, has spent and knows of its lease. Always
// lim + over = total + left + back, once its last operation is resolved.
type modelNode struct {
	id    int64
	dead  bool
	ver   int64
	lim   int64 // as last stored
	left  int64
	total int64 // spent, cumulative; survives in its journal
	told  int64 // flushed, cumulative
	over  int64 // spent beyond the lease, not told yet
	lost  *usage.LeaseCall
	gave  bool // the lost operation was a give
}

// leaseModel runs nodes against the database under one key, and knows what must come out.
type leaseModel struct {
	*world
	t       *rapid.T
	key     usage.Key
	account int64
	nodes   []*modelNode
	beyond  int64 // what the exceptions of I1 allow over the ceiling
	highest int64 // the highest ceiling so far
	strict  int64 // admitted by the database itself
}

func (m *leaseModel) add() {
	n, err := usage.Register(m.Context(), m.db, "model", "test", noon)
	require.NoError(m.t, err)
	m.nodes = append(m.nodes, &modelNode{id: n.ID})
}

func (m *leaseModel) pick(what string, fits func(*modelNode) bool) *modelNode {
	var some []*modelNode
	for _, n := range m.nodes {
		if fits(n) {
			some = append(some, n)
		}
	}
	if len(some) == 0 {
		m.t.Skip("no node to " + what)
	}
	return some[rapid.IntRange(0, len(some)-1).Draw(m.t, what)]
}

func alive(n *modelNode) bool { return !n.dead }

// operate sends an ask or a give and takes its answer, which may be lost after the commit.
func (m *leaseModel) operate(n *modelNode, c usage.LeaseCall, give bool) {
	if n.lost != nil { // unanswered: the same again, first of all
		c, give = *n.lost, n.gave
	} else {
		c.Key, c.Ver, c.Back, c.Over = m.key.Key, n.ver, n.left, n.over
		n.left = 0 // cut first, stored second
	}
	answers, err := m.send(n.id, c, give)
	require.NoError(m.t, err)
	if rapid.IntRange(0, 4).Draw(m.t, "answer") == 0 {
		n.lost, n.gave = &c, give
		return
	}
	n.lost = nil
	m.take(n, c, answers[0])
}

func (m *leaseModel) send(node int64, c usage.LeaseCall, give bool) ([]usage.LeaseAnswer, error) {
	if give {
		return usage.Give(m.Context(), m.db, node, []usage.LeaseCall{c})
	}
	return usage.Ask(m.Context(), m.db, node, true, []usage.LeaseCall{c})
}

func (m *leaseModel) take(n *modelNode, c usage.LeaseCall, a usage.LeaseAnswer) {
	switch a.Status {
	case usage.LeaseRejoin:
		n.left, n.over = 0, 0
		m.rejoin(n)
	case usage.LeaseAdopt: // it was applied and its answer lost, or the lease was settled: the stored state stands
		n.ver, n.lim = *a.Ver, *a.Lim
		n.left, n.over = max(0, n.lim-n.total), max(0, n.total-n.lim)
		if *a.Tight && n.left > 0 {
			m.operate(n, usage.LeaseCall{}, true) // nobody recalls a tight lease: back at once
		}
	case usage.LeaseOK:
		require.Equal(m.t, c.Ver+1, *a.Ver, "the version moves by one")
		require.Equal(m.t, n.lim-c.Back+c.Over+a.Got, *a.Lim)
		require.GreaterOrEqual(m.t, a.Got, int64(0))
		n.ver, n.lim = *a.Ver, *a.Lim
		n.over -= c.Over
		n.left += a.Got
		m.answered(n, c, a)
	default:
		require.Fail(m.t, "status", "%s", a.Status)
	}
}

// answered checks the decision itself, against all that the model knows.
func (m *leaseModel) answered(n *modelNode, c usage.LeaseCall, a usage.LeaseAnswer) {
	ceiling, granted := m.quota(m.key.Key)
	if c.Units > 0 && a.Got > 0 {
		require.GreaterOrEqual(m.t, a.Got, c.Units, "granted whole or not at all")
		require.LessOrEqual(m.t, granted, ceiling)
	}
	if c.Units > 0 && a.Got == 0 {
		require.Less(m.t, ceiling-granted, c.Units, "refused only where there is no room")
	}
	if a.Bound != nil {
		require.Less(m.t, *a.Bound, c.Units)
		loose := int64(0) // what live nodes still hold in memory and may give back
		for _, o := range m.nodes {
			if o != n && !o.dead && o.lost == nil && m.state(o.id) == "live" {
				loose += o.left
			}
		}
		require.Less(m.t, ceiling-granted+loose, c.Units, "a false refusal")
	}
	if n.left >= c.Units {
		n.left -= c.Units
		n.total += c.Units
	}
}

func (m *leaseModel) rejoin(n *modelNode) {
	if m.state(n.id) == "reaping" {
		return
	}
	require.NoError(m.t, usage.Settle(m.Context(), m.db, n.id, []int64{m.key.Key}, []int64{n.total}, noon, "woke up"))
	ok, err := usage.MoveNode(m.Context(), m.db, n.id, "reaped", "live")
	require.NoError(m.t, err)
	require.True(m.t, ok)
	n.told, n.left, n.over, n.ver, n.lost = n.total, 0, 0, -1, nil
}

// check holds after every step.
func (m *leaseModel) check(t *rapid.T) {
	m.t = t
	ceiling, granted := m.quota(m.key.Key)
	m.highest = max(m.highest, ceiling)
	require.EqualValues(t, granted, m.number("SELECT coalesce(sum(lim), 0)::bigint FROM weir.leases WHERE key = $1", m.key.Key), "granted is the sum of the leases")
	require.Zero(t, m.number("SELECT count(*) FROM weir.leases WHERE key = $1 AND lim < 0", m.key.Key))
	require.LessOrEqual(t, granted, m.highest+m.beyond, "never oversold")
	admitted, told := m.strict, m.strict
	for _, n := range m.nodes {
		admitted += n.total
		told += n.told
		if !n.dead && n.lost == nil && m.state(n.id) == "live" && n.ver >= 0 {
			require.Equal(t, n.lim+n.over, n.total+n.left, "node %d", n.id)
		}
	}
	require.LessOrEqual(t, admitted, m.highest+m.beyond)
	require.Equal(t, told, m.number("SELECT weir.stored($1)", m.key.Key), "what was told is stored, once")
	require.Equal(t, admitted >= told, true)
}

func (m *leaseModel) actions() map[string]func(*rapid.T) {
	step := func(f func()) func(*rapid.T) { return func(t *rapid.T) { m.t = t; f() } }
	return map[string]func(*rapid.T){
		"": m.check,
		"spend": step(func() {
			n := m.pick("spend", func(n *modelNode) bool { return alive(n) && n.left > 0 })
			u := rapid.Int64Range(1, n.left).Draw(m.t, "units")
			n.left, n.total = n.left-u, n.total+u
		}),
		"beyond": step(func() { // the database is away, and the plan says to go on
			n := m.pick("beyond", func(n *modelNode) bool { return alive(n) && n.left == 0 && n.ver >= 0 && m.state(n.id) == "live" })
			u := rapid.Int64Range(1, 20).Draw(m.t, "units")
			n.total, n.over, m.beyond = n.total+u, n.over+u, m.beyond+u
		}),
		"ask": step(func() {
			n := m.pick("ask", alive)
			u := rapid.Int64Range(1, 60).Draw(m.t, "units")
			m.operate(n, usage.LeaseCall{Units: u, Want: rapid.Int64Range(1, 200).Draw(m.t, "want"), Waiting: u}, false)
		}),
		"extend": step(func() {
			n := m.pick("extend", func(n *modelNode) bool { return alive(n) && n.lost == nil && n.over == 0 && n.ver >= 0 })
			a, err := m.send(n.id, usage.LeaseCall{Key: m.key.Key, Ver: n.ver, Want: 40}, false)
			require.NoError(m.t, err)
			if a[0].Status == usage.LeaseOK {
				n.ver, n.lim, n.left = *a[0].Ver, *a[0].Lim, n.left+a[0].Got
			} else {
				m.take(n, usage.LeaseCall{}, a[0])
			}
		}),
		"give":  step(func() { m.operate(m.pick("give", alive), usage.LeaseCall{}, true) }),
		"flush": step(func() { n := m.pick("flush", alive); n.told = n.total; m.flush(n.id, noon, m.key.Key, n.total) }),
		"repeat": step(func() {
			n := m.pick("repeat", func(n *modelNode) bool { return alive(n) && n.told > 0 })
			m.flush(n.id, noon, m.key.Key, rapid.Int64Range(0, n.told).Draw(m.t, "old"))
		}),
		"fold": step(func() {
			_, err := usage.Fold(m.Context(), m.db, rapid.IntRange(1, 5).Draw(m.t, "rows"))
			require.NoError(m.t, err)
		}),
		"strict": step(func() {
			u := rapid.Int64Range(1, 30).Draw(m.t, "units")
			a, err := usage.ConsumeStrict(m.Context(), m.db, usage.StrictCall{Account: m.key.Account, Feature: "events", Units: u, At: noon})
			require.NoError(m.t, err)
			if a.Admitted() {
				m.strict += u
			}
		}),
		"reap": step(func() {
			n := m.pick("reap", func(n *modelNode) bool { return true })
			ok, err := usage.Reap(m.Context(), m.db, n.id, m.number("SELECT heartbeat FROM weir.nodes WHERE id = $1", n.id))
			require.NoError(m.t, err)
			if ok { // others may be granted what it has spent and not told, and what it still holds and may spend
				m.beyond += max(0, n.total+n.left-m.lim(n.id, m.key.Key))
			}
		}),
		"wake": step(func() {
			m.rejoin(m.pick("wake", func(n *modelNode) bool { return alive(n) && m.state(n.id) == "reaped" }))
		}),
		"kill": step(func() {
			n := m.pick("kill", func(n *modelNode) bool { return alive(n) && len(m.nodes) > 1 })
			n.dead, n.left, n.over, n.lost = true, 0, 0, nil
			m.add()
		}),
		"recover": step(func() {
			m.recover(m.pick("recover", func(n *modelNode) bool { return n.dead && m.state(n.id) != "retired" }))
		}),
		"retire": step(func() {
			n := m.pick("retire", func(n *modelNode) bool { return n.dead })
			_, err := usage.Retire(m.Context(), m.db, n.id)
			require.NoError(m.t, err)
		}),
		"cap": step(func() {
			included := rapid.Int64Range(0, 400).Draw(m.t, "included")
			require.NoError(m.t, usage.SetOverride(m.Context(), m.db, m.account, "events", usage.Override{Included: &included, Reason: "r", Actor: "a"}, noon))
		}),
	}
}

func (m *leaseModel) recover(n *modelNode) {
	state := m.state(n.id)
	_, err := usage.RecoverNode(m.Context(), m.db, n.id, []usage.Recovered{{Key: m.key.Key, Upto: n.total, Matches: fits}}, noon)
	require.NoError(m.t, err)
	if state == "reaped" || state == "live" {
		n.told = n.total
	}
}

// Any interleaving of asks, lost answers, gives, flushes, repetitions, folds, kills, reaping, recovery, retirement and
// moved ceilings: nothing is oversold, nothing counted twice, no refusal is false.
func TestLeaseProtocolModel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var round atomic.Int64
	rapid.Check(t, func(t *rapid.T) {
		w.exec("UPDATE weir.nodes SET state = 'retired' WHERE state <> 'internal'") // of earlier rounds
		m := &leaseModel{world: w, t: t}
		account := fmt.Sprint("model ", round.Add(1))
		m.key = w.key(account, "events", noon)
		m.account = m.key.AccountID
		m.highest = m.key.Ceiling
		for range 3 {
			m.add()
		}
		t.Repeat(m.actions())
		m.settleAll(t)
	})
	w.sound()
}

// settleAll ends the story: everything is recovered, folded and retired, and what was admitted is what is stored.
func (m *leaseModel) settleAll(t *rapid.T) {
	m.t = t
	admitted := m.strict
	for _, n := range m.nodes {
		n.dead = true
		if s := m.state(n.id); s != "retired" && s != "recovered" {
			m.recover(n)
		}
		admitted += n.total
	}
	m.fold()
	for _, n := range m.nodes {
		ok, err := usage.Retire(m.Context(), m.db, n.id)
		require.NoError(t, err)
		require.True(t, ok)
	}
	m.check(t)
	require.Equal(t, admitted, m.total(m.key.Key).Used)
	_, granted := m.quota(m.key.Key)
	require.Equal(t, admitted, granted, "nothing is out any more")
}
