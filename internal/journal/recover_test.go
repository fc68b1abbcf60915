package journal_test

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirhq/weir/internal/journal"
)

func nothing(context.Context, journal.Dead) error { return nil }

func TestRecoverySumsSlotsOfAKeyAndHash(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	j := open(t, dir, 3, 2)
	for i, n := range []uint64{5, 7, 11, 13, 17} { // three segments
		key := int64(20 - i%2)
		spend(j.Take(key, hashOf("acme"), 1<<33), n)
	}
	spend(j.Take(20, hashOf("other"), 0), 1)
	require.NoError(t, j.Close(false))

	want := []journal.Entry{
		{Key: 19, Hash: hashOf("acme"), Total: 2<<33 + 7 + 13},
		{Key: 20, Hash: hashOf("acme"), Total: 3<<33 + 5 + 11 + 17},
		{Key: 20, Hash: hashOf("other"), Total: 1},
	}
	slices.SortFunc(want[1:], func(a, b journal.Entry) int { return slices.Compare(a.Hash[:], b.Hash[:]) })
	calls := 0
	problems, err := journal.Recover(t.Context(), dir, installation, func(_ context.Context, dead journal.Dead) error {
		calls++
		require.Equal(t, int64(3), dead.Node)
		require.False(t, dead.Created.IsZero())
		require.Equal(t, want, dead.Entries)
		return nil
	})
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Equal(t, 1, calls)
	require.Empty(t, files(t, dir))
}

func TestALiveNodeIsNotTouched(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	live := open(t, dir, 1, 2)
	for i := range 5 {
		live.Take(int64(i), hashOf("live"), 3)
	}
	before := contents(t, dir)
	dead := open(t, dir, 2, 2)
	dead.Take(9, hashOf("dead"), 4)
	require.NoError(t, dead.Close(false))
	require.Equal(t, map[int64]uint64{9: 4}, recovered(t, dir))
	require.Equal(t, before, contents(t, dir))
	require.Empty(t, recovered(t, filepath.Join(dir, "missing")))
}

func TestARefusedStoreKeepsTheFilesAndTheOthersGoOn(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	for node := range int64(3) {
		j := open(t, dir, node+1, 0)
		j.Take(node+1, hashOf("acme"), 10)
		require.NoError(t, j.Close(false))
	}
	refusal := errors.New("node 2 is unknown")
	var stored []int64
	problems, err := journal.Recover(t.Context(), dir, installation, func(_ context.Context, dead journal.Dead) error {
		if dead.Node == 2 {
			return refusal
		}
		stored = append(stored, dead.Node)
		return nil
	})
	require.NoError(t, err)
	require.Len(t, problems, 1)
	require.Equal(t, journal.Rejected, problems[0].Reason)
	require.ErrorIs(t, problems[0], refusal)
	require.Equal(t, []int64{1, 3}, stored)
	require.Equal(t, []string{"node-2-0.weir"}, files(t, dir))
	require.Equal(t, map[int64]uint64{2: 10}, recovered(t, dir))
}

func TestRecoveryEndsWithItsContext(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	for node := range int64(3) {
		require.NoError(t, open(t, dir, node+1, 0).Close(false))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := journal.Recover(ctx, dir, installation, func(context.Context, journal.Dead) error { cancel(); return nil })
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, []string{"node-2-0.weir", "node-3-0.weir"}, files(t, dir))
}

func TestOfTwoRecoveriesOnlyOneSeesANode(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	const nodes = 30
	for node := range int64(nodes) {
		j := open(t, dir, node+1, 1)
		j.Take(1, hashOf("acme"), 1)
		j.Take(2, hashOf("acme"), 1)
		require.NoError(t, j.Close(false))
	}
	var mu sync.Mutex
	seen := map[int64]int{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			problems, err := journal.Recover(t.Context(), dir, installation, func(ctx context.Context, dead journal.Dead) error {
				mu.Lock()
				seen[dead.Node]++
				mu.Unlock()
				again := 0 // while the node is held, nobody else gets it
				_, err := journal.Recover(ctx, dir, installation, func(_ context.Context, other journal.Dead) error {
					if other.Node == dead.Node {
						again++
					}
					return errors.New("only looking")
				})
				if again > 0 {
					return errors.New("seen twice at once")
				}
				return err
			})
			for _, p := range problems {
				if p.Reason != journal.Rejected || p.Err.Error() == "seen twice at once" {
					t.Errorf("unexpected problem: %v", p)
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	recovered(t, dir) // what was looked at when its turn came
	require.Empty(t, files(t, dir))
	for node, times := range seen {
		require.Equal(t, 1, times, "node %d", node)
	}
}

func TestAnInterruptedRemovalIsFinishedAndStoresNothingAgain(t *testing.T) {
	t.Parallel()
	const segments = 4
	for removed := range segments + 1 {
		dir := tempDir(t)
		j := open(t, dir, 1, 1)
		for i := range segments - 1 { // one more is made ahead
			j.Take(int64(i), hashOf("acme"), 5)
		}
		require.NoError(t, j.Close(false))
		patch(t, filepath.Join(dir, "node-1-0.weir"), func(b []byte) { binary.NativeEndian.PutUint64(b[136:], 1) })
		for i := range removed {
			require.NoError(t, os.Remove(filepath.Join(dir, segmentName(segments-1-i))))
		}
		problems, err := journal.Recover(t.Context(), dir, installation, func(context.Context, journal.Dead) error {
			t.Error("stored again")
			return nil
		})
		require.NoError(t, err)
		require.Empty(t, problems)
		require.Empty(t, files(t, dir))
	}
}

func TestARemovalThatFailsHalfwayIsFinishedLater(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	j := open(t, dir, 1, 1)
	for i := range 3 {
		j.Take(int64(i), hashOf("acme"), 5)
	}
	require.NoError(t, j.Close(false))
	stuck := filepath.Join(dir, "node-1-1.weir")
	calls := 0
	problems, err := journal.Recover(t.Context(), dir, installation, func(context.Context, journal.Dead) error {
		calls++
		require.NoError(t, os.Remove(stuck)) // read already; now it can't be removed
		return os.MkdirAll(filepath.Join(stuck, "x"), 0o700)
	})
	require.NoError(t, err)
	require.Len(t, problems, 1)
	require.Equal(t, journal.Stuck, problems[0].Reason)
	require.Equal(t, []string{"node-1-0.weir", "node-1-1.weir"}, files(t, dir), "segment 0 goes last")
	require.NoError(t, os.RemoveAll(stuck))
	require.Empty(t, recovered(t, dir))
	require.Empty(t, files(t, dir))
	require.Equal(t, 1, calls)
}

func TestASegmentThatWasMadeButNotCountedIsTakenAlong(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	j := open(t, dir, 1, 1)
	j.Take(1, hashOf("acme"), 5)
	require.NoError(t, j.Close(false))
	require.Len(t, files(t, dir), 2)
	patch(t, filepath.Join(dir, "node-1-0.weir"), func(b []byte) { binary.NativeEndian.PutUint64(b[128:], 1) })
	require.Equal(t, map[int64]uint64{1: 5}, recovered(t, dir))
	require.Empty(t, files(t, dir))
}

func TestDraftsOfTheDeadAreSwept(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	j := open(t, dir, 1, 4)
	j.Take(1, hashOf("acme"), 5)
	require.NoError(t, j.Close(false))
	// Killed while it was made, and killed between its two names.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "node-1-1.weir.new0"), []byte("half"), 0o600))
	require.NoError(t, os.Link(filepath.Join(dir, "node-1-0.weir"), filepath.Join(dir, "node-1-0.weir.new3")))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "node-1-1.weir.newer"), nil, 0o600))
	require.Equal(t, map[int64]uint64{1: 5}, recovered(t, dir))
	require.Equal(t, []string{"node-1-1.weir.newer"}, files(t, dir))
}

func segmentName(i int) string { return "node-1-" + string(rune('0'+i)) + ".weir" }

func contents(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range files(t, dir) {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			b = []byte(err.Error())
		}
		all[name] = string(b)
	}
	return all
}

func patch(t testing.TB, path string, change func([]byte)) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	change(b)
	require.NoError(t, os.WriteFile(path, b, 0o600))
}

func fixChecksum(b []byte) {
	binary.NativeEndian.PutUint32(b[64:], crc32.Checksum(b[:64], crc32.MakeTable(crc32.Castagnoli)))
}

func TestWhatCannotBeReadIsLeftInPlaceAndNamed(t *testing.T) {
	t.Parallel()
	e := binary.NativeEndian
	for _, tc := range []struct {
		name   string
		file   string // "": segment 1
		change func([]byte) []byte
		reason journal.Reason
		says   string
	}{
		{"foreign", "", func(b []byte) []byte { b[16] ^= 1; fixChecksum(b); return b }, journal.Foreign, "belongs to installation"},
		{"newer", "", func(b []byte) []byte { e.PutUint32(b[8:], 2); return b }, journal.NewFormat, "start the newer version"},
		{"newer first segment", "node-1-0.weir", func(b []byte) []byte { e.PutUint32(b[8:], 9); return b }, journal.NewFormat, "format 9"},
		{"format 0", "", func(b []byte) []byte { e.PutUint32(b[8:], 0); fixChecksum(b); return b }, journal.Torn, "no version writes"},
		{"other byte order", "", func(b []byte) []byte { slices.Reverse(b[12:16]); return b }, journal.Torn, "byte order"},
		{"bit flipped", "", func(b []byte) []byte { b[40] ^= 4; return b }, journal.Torn, "checksum"},
		{"zeros", "", func(b []byte) []byte { clear(b); return b }, journal.Torn, "lost power"},
		{"text", "", func(b []byte) []byte { copy(b, "hello"); return b }, journal.Torn, "no journal"},
		{"empty", "", func([]byte) []byte { return nil }, journal.Torn, "shorter than its header"},
		{"cut", "", func(b []byte) []byte { return b[:len(b)-1] }, journal.Torn, "4223 bytes instead of 4224"},
		{"longer", "", func(b []byte) []byte { return append(b, 0) }, journal.Torn, "instead of"},
		{"copy", "", func(b []byte) []byte { e.PutUint64(b[32:], 8); fixChecksum(b); return b }, journal.Misplaced, "node 8, segment 1"},
		{"other making", "", func(b []byte) []byte { b[56] ^= 1; fixChecksum(b); return b }, journal.Torn, "together"},
		{"too many segments", "node-1-0.weir", func(b []byte) []byte { e.PutUint64(b[128:], 1<<40); return b }, journal.Torn, "number of segments"},
		{"more segments", "node-1-0.weir", func(b []byte) []byte { e.PutUint64(b[128:], 5); return b }, journal.Incomplete, "missing"},
		{"impossible total", "", func(b []byte) []byte { e.PutUint64(b[4096+8:], 1<<63); return b }, journal.Torn, "beyond 2^63"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			j := open(t, dir, 1, 2)
			for i := range 5 {
				j.Take(int64(i), hashOf("acme"), 7)
			}
			require.NoError(t, j.Close(false))
			name := tc.file
			if name == "" {
				name = "node-1-1.weir"
			}
			path := filepath.Join(dir, name)
			named := path
			if tc.reason == journal.Incomplete {
				named = filepath.Join(dir, "node-1-3.weir")
			}
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, tc.change(b), 0o600))
			parked(t, dir, tc.reason, named, tc.says)
		})
	}
}

// parked asserts that recovery names one file, stores nothing and changes nothing.
func parked(t *testing.T, dir string, reason journal.Reason, path, says string) {
	t.Helper()
	before := contents(t, dir)
	for range 2 { // and again
		problems, err := journal.Recover(t.Context(), dir, installation, func(context.Context, journal.Dead) error {
			t.Error("a part was stored")
			return nil
		})
		require.NoError(t, err)
		require.Len(t, problems, 1)
		require.Equal(t, reason, problems[0].Reason)
		require.Equal(t, path, problems[0].Path)
		require.ErrorContains(t, problems[0], says)
		require.ErrorContains(t, problems[0], path)
	}
	require.Equal(t, before, contents(t, dir))
}

func TestOddThingsInTheFolder(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		make   func(path string) error
		file   string
		reason journal.Reason
		says   string
	}{
		{"symbolic link", func(p string) error { return os.Symlink("/etc/passwd", p) }, "node-7-0.weir", journal.Unreadable, "can't be read"},
		{"folder", func(p string) error { return os.Mkdir(p, 0o700) }, "node-7-0.weir", journal.Unreadable, "can't be read"},
		{"orphan", func(p string) error { return os.WriteFile(p, nil, 0o600) }, "node-7-3.weir", journal.Incomplete, "missing"},
		{"other spelling", func(p string) error { return os.WriteFile(p, nil, 0o600) }, "node-07-0.weir", journal.Misplaced, "renamed"},
		{"node 0", func(p string) error { return os.WriteFile(p, nil, 0o600) }, "node-0-0.weir", journal.Misplaced, "renamed"},
		{"line break", func(p string) error { return os.WriteFile(p, nil, 0o600) }, "a\nb.weir", journal.Misplaced, "renamed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, tc.make(filepath.Join(dir, tc.file)))
			problems, err := journal.Recover(t.Context(), dir, installation, nothing)
			require.NoError(t, err)
			require.Len(t, problems, 1)
			require.Equal(t, tc.reason, problems[0].Reason)
			require.ErrorContains(t, problems[0], tc.says)
			require.NotContains(t, problems[0].Error(), "\n")
			require.Equal(t, []string{tc.file}, files(t, dir))
		})
	}
}

func TestRecoveryRefusesAFolderThatIsOpenToOthers(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	j := open(t, dir, 1, 0)
	require.NoError(t, j.Close(false))
	require.NoError(t, os.Chmod(dir, 0o722))
	_, err := journal.Recover(t.Context(), dir, installation, nothing)
	var problem *journal.Problem
	require.ErrorAs(t, err, &problem)
	require.Equal(t, journal.InsecureFolder, problem.Reason)
	require.Len(t, files(t, dir), 1)
}
