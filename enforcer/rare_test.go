package enforcer

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What few counters need is there while it is needed, says what was put into it, and is dropped afterwards.
func TestWhatIsRareIsKeptWhileItIsUsed(t *testing.T) {
	t.Parallel()
	e, fresh := bare(t, attack, 1000)
	rapid.Check(t, func(t *rapid.T) {
		c := newCounter(fresh.slot, fresh.view.Load(), lease{ver: 1, lim: 1000}, e.journal.Take(1, [16]byte{15: 1}, 0))
		var waiting []int64
		var held, promised int64
		var turns []chan struct{}
		var woken []<-chan struct{}
		cells, busy := false, false
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				n := rapid.Int64Range(1, 9).Draw(t, "units")
				c.join(n)
				waiting = append(waiting, n)
			},
			"leave": func(*rapid.T) {
				if len(waiting) > 0 {
					c.leave(waiting[0])
					waiting = waiting[1:]
				}
			},
			"reserve": func(*rapid.T) {
				if c.reserve(2) {
					held += 2
				}
			},
			"release": func(*rapid.T) {
				if held > 0 {
					c.mu.Lock()
					c.hold(-2)
					credit(c.word(), 0, 2)
					c.mu.Unlock()
					held -= 2
				}
			},
			"promise": func(*rapid.T) { c.promise(1); promised++ },
			"close": func(*rapid.T) {
				if promised > 0 {
					c.promise(-1)
					promised--
				}
			},
			"promote": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") == 0 {
					e.promote(c)
					cells = true
				}
			},
			"lock": func(*rapid.T) {
				if c.tryLock() {
					busy = true
					return
				}
				turn := make(chan struct{}, 1)
				c.mu.Lock()
				x := &c.unusual().crowd
				x.queue = append(x.queue, turn)
				c.mu.Unlock()
				turns = append(turns, turn)
			},
			"unlock": func(t *rapid.T) {
				if !busy {
					return
				}
				c.unlock()
				if busy = len(turns) > 0; busy {
					require.Len(t, turns[0], 1, "the first one has the turn")
					turns = turns[1:]
				}
			},
			"give up": func(t *rapid.T) {
				if len(turns) > 0 {
					require.True(t, c.unqueue(turns[0]))
					turns = turns[1:]
				}
			},
			"wait": func(*rapid.T) {
				if len(waiting) > 0 {
					woken = append(woken, c.waker())
				}
			},
			"wake": func(t *rapid.T) {
				c.wakeAll()
				for _, w := range woken {
					if len(waiting) > 0 { // else nobody waits for it any more
						<-w
					}
				}
				woken = nil
			},
			"": func(t *rapid.T) {
				if len(waiting) == 0 {
					woken = nil
				}
				var units int64
				for _, n := range waiting {
					units += n
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				require.Equal(t, units, c.waiting())
				require.Equal(t, held, c.held())
				require.EqualValues(t, promised, c.promised())
				require.Equal(t, cells, c.cells() != nil)
				require.Equal(t, busy, c.busy)
				require.Equal(t, cells || held+promised > 0 || len(waiting)+len(turns) > 0, c.rare.Load() != nil)
				require.EqualValues(t, 1000, c.left()+c.held())
			},
		})
	})
}
