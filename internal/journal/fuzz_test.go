package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func image(slots int) []byte {
	h := header{installation: [16]byte{1}, node: 1, slots: uint32(slots), created: time.Unix(1, 2)}
	seg := heapSegment(slots)
	copy(seg.mem, h.encode())
	for i := range slots {
		w := seg.slot(i).occupy(int64(i), testHash(), uint64(i))
		apply(w[:])
	}
	return seg.mem
}

// Whatever bytes a file holds: recovery stores the whole of it and removes it,
// or names it and leaves every byte.
func FuzzRecover(f *testing.F) {
	good := image(2)
	f.Add(good, []byte(nil), false)
	f.Add(good[:headerSize], []byte(nil), false)
	f.Add(good[:100], []byte("x"), true)
	settled := bytes.Clone(good)
	settled[offState] = stateSettled
	f.Add(settled, good, true)
	second := bytes.Clone(good)
	binary.NativeEndian.PutUint32(second[40:], 1)
	binary.NativeEndian.PutUint32(second[offChecksum:], checksum(second))
	f.Add(good, second, true)
	newer := bytes.Clone(good)
	newer[8] = 7
	f.Add(newer, []byte(nil), false)
	f.Fuzz(func(t *testing.T, first, second []byte, two bool) {
		dir := filepath.Join(t.TempDir(), "journals")
		require.NoError(t, os.Mkdir(dir, 0o700))
		content := map[string][]byte{segmentPath(dir, 1, 0): first}
		if two {
			content[segmentPath(dir, 1, 1)] = second
		}
		for path, b := range content {
			require.NoError(t, os.WriteFile(path, b, 0o600))
		}
		stored := 0
		problems, err := Recover(t.Context(), dir, [16]byte{1}, func(_ context.Context, dead Dead) error {
			stored++
			for _, e := range dead.Entries {
				require.LessOrEqual(t, e.Total, uint64(1<<63-1))
				require.NotZero(t, e.Hash.hi())
			}
			return nil
		})
		require.NoError(t, err)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		if len(problems) == 0 {
			require.Empty(t, left)
			require.LessOrEqual(t, stored, 1)
			return
		}
		require.Zero(t, stored)
		require.Len(t, left, len(content))
		for path, b := range content {
			now, err := os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, bytes.Equal(b, now))
		}
	})
}

func FuzzHeader(f *testing.F) {
	good := image(3)
	f.Add(good, int64(len(good)))
	f.Add(good[:headerSize], int64(0))
	f.Add([]byte(magic), int64(8))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		h, problem := parseHeader(b, size)
		if problem != nil {
			require.Contains(t, []Reason{Torn, NewFormat}, problem.Reason)
			require.NotEmpty(t, problem.Detail)
			return
		}
		require.Equal(t, size, h.fileSize())
		require.Equal(t, b[:offChecksum+4], h.encode()[:offChecksum+4])
	})
}

func TestOnlyOneSpellingNamesASegment(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"node-1-0.weir", "node-9223372036854775807-1023.weir"} {
		node, segment, ok := parseName(name)
		require.True(t, ok)
		require.Equal(t, name, filepath.Base(segmentPath("", node, segment)))
		require.True(t, isDraft(name+".new0"))
	}
	for _, name := range []string{
		"", ".weir", "node-1-0", "node-1-0.weir.new", "node-01-0.weir", "node-1-00.weir", "node-+1-0.weir", "node--1-0.weir",
		"node-0-0.weir", "node-1-1024.weir", "node-9223372036854775808-0.weir", "node-1-0-0.weir", "Node-1-0.weir", "node-1-.weir",
	} {
		_, _, ok := parseName(name)
		require.False(t, ok, name)
		require.False(t, isDraft(name+".new0"), name)
	}
	require.False(t, isDraft("node-1-0.weir"))
	require.False(t, isDraft("node-1-0.weir.new300"))
}
