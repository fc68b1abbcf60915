package journal_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/journal"
)

const (
	counters  = 4  // goroutines of the child
	maxAmount = 50 // units of one call; each goroutine has one call in flight
	sharedKey = 1  // counted by all goroutines in one slot; the others have one owner
)

// record is what the child tells: at most one is in flight per goroutine.
type record struct {
	stored bool // n is the total of the key, stored elsewhere; else n units more were counted
	key    int64
	n      uint64
}

const recordSize = 17

func (r record) encode() []byte {
	b := make([]byte, 1, recordSize)
	if r.stored {
		b[0] = 1
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(r.key))
	return binary.LittleEndian.AppendUint64(b, r.n)
}

func decode(b []byte) record {
	return record{b[0] == 1, int64(binary.LittleEndian.Uint64(b[1:])), binary.LittleEndian.Uint64(b[9:])}
}

// countUntilKilled counts in a journal of tiny segments, and acknowledges each
// call on standard output after it. Arguments: folder, node, seed.
func countUntilKilled() error {
	node, err := strconv.ParseInt(os.Args[2], 10, 64)
	if err != nil {
		return err
	}
	seed, err := strconv.ParseUint(os.Args[3], 10, 64)
	if err != nil {
		return err
	}
	j, err := journal.Open(journal.Config{Dir: os.Args[1], Installation: installation, Node: node, SegmentSlots: 2, Patience: time.Minute})
	if err != nil {
		return err
	}
	shared := j.Take(sharedKey, hashOf("shared"), 0)
	failed := make(chan error)
	for g := range counters {
		c := counter{journal: j, shared: shared, first: int64(100 * (g + 1)), rand: rand.New(rand.NewPCG(seed, uint64(g)))}
		go func() { failed <- c.run() }()
	}
	return <-failed
}

// counter is one goroutine of the child. Its own keys come and go.
type counter struct {
	journal *journal.Journal
	shared  *journal.Slot
	first   int64
	rand    *rand.Rand
	held    [3]*journal.Slot
	total   [3]uint64
}

func (c *counter) run() error {
	tell := func(r record) error { // one write, so never mixed
		_, err := os.Stdout.Write(r.encode())
		return err
	}
	for {
		n := 1 + c.rand.Uint64N(maxAmount)
		own := c.rand.IntN(len(c.held))
		key := c.first + int64(own)
		var err error
		switch op := c.rand.IntN(10); {
		case op < 4:
			admit(c.shared.Word(), n)
			err = tell(record{false, sharedKey, n})
		case op < 5: // a base may lag, so nothing orders its movers
			c.shared.Base().Store(c.shared.Total())
		case c.held[own] == nil:
			c.held[own] = c.journal.Take(key, hashOf("own"), c.total[own])
			if c.held[own].OnHeap() {
				return fmt.Errorf("on the heap: %w", c.journal.Stats().Problem)
			}
		case op < 8:
			admit(c.held[own].Word(), n)
			c.total[own] += n
			c.held[own].Base().Store(c.held[own].Total())
			err = tell(record{false, key, n})
		default: // the total is stored, then the slot is another key's
			err = tell(record{true, key, c.held[own].Total()})
			c.journal.Release(c.held[own])
			c.held[own] = nil
		}
		if err != nil {
			return err
		}
	}
}

// admit is the hot path: one compare-and-swap counts.
func admit(word interface {
	Load() uint64
	CompareAndSwap(old, new uint64) bool
}, n uint64) {
	for {
		w := word.Load()
		if word.CompareAndSwap(w, w+n<<32) {
			return
		}
	}
}

func TestKilledProcessesLoseAndDoubleNothing(t *testing.T) {
	t.Parallel()
	kills := 200
	if testing.Short() {
		kills = 50
	}
	dir := tempDir(t)
	random := rand.New(rand.NewPCG(1, 2))
	var told, found, units uint64
	for node := range int64(kills) {
		acknowledged, stored := runAndKill(t, dir, node+1, random.IntN(3000))
		sums := recovered(t, dir)
		require.Empty(t, files(t, dir))
		for key, total := range stored { // what the database would make of it: the maximum
			sums[key] = max(sums[key], total)
		}
		var inFlight uint64
		for key, total := range sums {
			limit := uint64(maxAmount)
			if key == sharedKey {
				limit *= counters
			}
			require.GreaterOrEqual(t, total, acknowledged[key], "node %d, key %d: lost", node+1, key)
			require.LessOrEqual(t, total, acknowledged[key]+limit, "node %d, key %d: doubled", node+1, key)
			inFlight += total - acknowledged[key]
			found += total
			units += acknowledged[key]
		}
		require.LessOrEqual(t, inFlight, uint64(counters*maxAmount), "node %d", node+1)
		for key, total := range acknowledged {
			told += total
			require.Contains(t, sums, key)
		}
	}
	require.Equal(t, told, units)
	require.NotZero(t, told)
	t.Logf("%d kills: %d units acknowledged, %d recovered, %d in flight", kills, told, found, found-told)
}

// runAndKill starts a process, kills it when it has told so many records, and
// returns by key what it acknowledged and what it had stored.
func runAndKill(t *testing.T, dir string, node int64, records int) (acknowledged, stored map[int64]uint64) {
	t.Helper()
	cmd := child(t, "count", dir, strconv.FormatInt(node, 10), strconv.Itoa(records))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	acknowledged, stored = map[int64]uint64{}, map[int64]uint64{}
	told := bufio.NewReaderSize(out, 1<<16)
	b := make([]byte, recordSize)
	for i := 0; ; i++ {
		if i == records {
			require.NoError(t, cmd.Process.Kill())
		}
		_, err := io.ReadFull(told, b)
		if errors.Is(err, io.EOF) {
			require.GreaterOrEqual(t, i, records, "the process ended by itself")
			break
		}
		require.NoError(t, err)
		if r := decode(b); r.stored {
			stored[r.key] = r.n
		} else {
			acknowledged[r.key] += r.n
		}
	}
	require.ErrorContains(t, cmd.Wait(), "killed")
	return acknowledged, stored
}

func TestAKilledRecoveryIsRepeatedByTheNext(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	j := open(t, dir, 1, 1)
	j.Take(4, hashOf("acme"), 1234)
	require.NoError(t, j.Close(false))
	// A crash after the caller's commit and before the removal looks like a
	// store that never answered: the same totals come again.
	for range 2 {
		_, err := journal.Recover(t.Context(), dir, installation, func(_ context.Context, dead journal.Dead) error {
			require.Equal(t, []journal.Entry{{Key: 4, Hash: hashOf("acme"), Total: 1234}}, dead.Entries)
			return errors.New("the answer was lost")
		})
		require.NoError(t, err)
	}
	require.Equal(t, map[int64]uint64{4: 1234}, recovered(t, dir))
}
