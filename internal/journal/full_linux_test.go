package journal_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weirhq/weir/internal/journal"
)

func volumeChildren() map[string]func() error {
	return map[string]func() error{"full volume": fillVolume, "file limit": reachFileLimit}
}

// A volume without room, in a process of its own: a fault would end it.
func TestAFullVolumePutsCountersOnTheHeapAndFaultsNobody(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	require.NoError(t, os.Mkdir(dir, 0o700))
	if os.Geteuid() != 0 { // only root may mount; the limit below is there for everybody
		require.NoError(t, child(t, "file limit", dir).Run())
		return
	}
	cmd := child(t, "full volume", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // its mount ends with it
	require.NoError(t, cmd.Run())
}

// A write beyond RLIMIT_FSIZE would raise SIGXFSZ.
func TestALimitOfFileSizesPutsCountersOnTheHeapAndFaultsNobody(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	require.NoError(t, child(t, "file limit", dir).Run())
}

const fullSlots = 1024 // 17 pages to a segment

func openFull(dir string) (*journal.Journal, error) {
	return journal.Open(journal.Config{Dir: dir, Installation: installation, Node: 1, SegmentSlots: fullSlots})
}

func fillVolume() error {
	dir := os.Args[1]
	if err := unix.Mount("weir", dir, "tmpfs", 0, "size=400k,mode=0700"); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	j, err := openFull(dir)
	if err != nil {
		return err
	}
	slots := takeUntilHeap(j)
	if err := expectHeap(j, slots, journal.DiskFull, 2); err != nil {
		return err
	}
	if err := useUpRoom(filepath.Join(dir, "ballast")); err != nil {
		return err
	}
	return countAndRecover(dir, j, slots)
}

func reachFileLimit() error {
	dir := os.Args[1]
	j, err := openFull(dir)
	if err != nil {
		return err
	}
	var room unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &room); err != nil {
		return err
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, unix.SIGXFSZ, unix.SIGWINCH)
	room.Cur = 4096 + fullSlots*64 - 1
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &room); err != nil {
		return fmt.Errorf("set the limit: %w", err)
	}
	slots := takeUntilHeap(j)
	if err := expectHeap(j, slots, journal.FileSizeLimit, 1); err != nil {
		return err
	}
	// Pending signals are delivered in order of their numbers: this one is last.
	if err := unix.Kill(os.Getpid(), unix.SIGWINCH); err != nil {
		return err
	}
	if first := <-signals; first != unix.SIGWINCH {
		return fmt.Errorf("the host received %v", first)
	}
	return countAndRecover(dir, j, slots)
}

// takeUntilHeap ends with the first slot on the heap.
func takeUntilHeap(j *journal.Journal) []*journal.Slot {
	var slots []*journal.Slot
	for {
		s := j.Take(int64(len(slots)), hashOf("acme"), 0)
		slots = append(slots, s)
		if s.OnHeap() {
			return slots
		}
	}
}

func expectHeap(j *journal.Journal, slots []*journal.Slot, reason journal.Reason, segments int) error {
	stats := j.Stats()
	if stats.Problem == nil || stats.Problem.Reason != reason || stats.Segments < segments || len(slots) != stats.Slots+1 {
		return fmt.Errorf("%d slots, want reason %s: %+v, %w", len(slots), reason, stats, stats.Problem)
	}
	return nil
}

// useUpRoom writes until not a page is left.
func useUpRoom(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("fill the volume: %w", err)
	}
	return f.Close()
}

// writeBack makes every page clean, so that the next store to it faults once.
func writeBack(dir string) error {
	names, err := filepath.Glob(filepath.Join(dir, "node-*.weir"))
	for _, name := range names {
		f, openErr := os.Open(name)
		if openErr != nil {
			return openErr
		}
		err = errors.Join(err, f.Sync(), f.Close())
	}
	return err
}

// countAndRecover counts in every slot with no room left, syncs, counts again,
// and expects all of it back but the slot on the heap.
func countAndRecover(dir string, j *journal.Journal, slots []*journal.Slot) error {
	for range 3 {
		for i, s := range slots {
			spend(s, uint64(i))
		}
		if err := writeBack(dir); err != nil {
			return err
		}
	}
	if err := j.Close(false); err != nil {
		return err
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.new*"))
	if err != nil || len(names) > 0 {
		return fmt.Errorf("drafts are left: %s, %w", strings.Join(names, ", "), err)
	}
	problems, err := journal.Recover(context.Background(), dir, installation, func(_ context.Context, dead journal.Dead) error {
		if len(dead.Entries) != len(slots)-1 {
			return fmt.Errorf("%d entries of %d slots", len(dead.Entries), len(slots))
		}
		for i, e := range dead.Entries {
			if e.Key != int64(i) || e.Total != uint64(3*i) {
				return fmt.Errorf("entry %d is %+v", i, e)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, p := range problems {
		return p
	}
	return nil
}
