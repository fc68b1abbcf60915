package enforcer

import "sync/atomic"

// stats counts what slow paths do. The hot path counts nothing.
type stats struct {
	exchanges    atomic.Int64 // statements of asks and gives
	contacts     atomic.Int64
	flushes      atomic.Int64
	recalls      atomic.Int64
	refused      atomic.Int64
	unavailable  atomic.Int64
	timeouts     atomic.Int64
	filled       atomic.Int64 // units counted without a lease while the database was away
	overruns     atomic.Int64 // units settled beyond what was to be had
	expired      atomic.Int64 // reservations
	failovers    atomic.Int64
	listenerLost atomic.Int64
}

// Stats are counts since Start, for metrics and tests.
type Stats struct {
	Exchanges    int64 // round trips of asks, extends and gives
	Contacts     int64 // round trips that loaded an account
	Flushes      int64 // round trips of batches and heartbeats
	Recalls      int64 // calls for this node's loose leases
	Refused      int64 // calls refused for quota, after the fast path
	Unavailable  int64 // calls answered unavailable
	Timeouts     int64 // calls whose time ran out
	Filled       int64 // units counted without a lease while the database was away
	Overruns     int64 // units settled beyond what the quota had
	Expired      int64 // reservations that were forgotten
	Reserved     int64 // open reservations
	Failovers    int64 // times that the database had lost stored heartbeats
	ListenerLost int64 // times that the notification connection was lost
	Nodes        int64 // live nodes, as of the last heartbeat
	Counters     int   // keys in memory
	Accounts     int   // accounts in memory
	HeapCounters int   // counters that no journal file holds
	Away         bool  // the database does not answer
	Node         int64 // this node's id
}

// Stats returns them.
func (e *Enforcer) Stats() Stats {
	s := Stats{
		Exchanges: e.stats.exchanges.Load(), Contacts: e.stats.contacts.Load(), Flushes: e.stats.flushes.Load(),
		Recalls: e.stats.recalls.Load(), Refused: e.stats.refused.Load(), Unavailable: e.stats.unavailable.Load(),
		Timeouts: e.stats.timeouts.Load(), Filled: e.stats.filled.Load(), ListenerLost: e.stats.listenerLost.Load(),
		Overruns: e.stats.overruns.Load(), Expired: e.stats.expired.Load(), Reserved: e.reserved.Load(), Failovers: e.stats.failovers.Load(),
		Nodes: e.nodes.Load(), Counters: e.byKey.size(), Accounts: e.accounts.Size(),
	}
	if e.started.Load() {
		s.HeapCounters, s.Away, s.Node = e.journal.Stats().OnHeap, e.isAway(), e.node
	}
	return s
}
