package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// unlockedAge is how old a folder without its final name must be to count as
// left behind; naming it takes milliseconds.
const unlockedAge = time.Hour

// sweep removes what dead servers of this user left behind. A server is dead
// when its locks are free. A live server whose owner and keeper were both
// killed is stopped first.
func sweep(ctx context.Context, runAs account) error {
	for _, base := range bases() {
		// Glob fails only on a malformed pattern.
		locked, _ := filepath.Glob(filepath.Join(base, folderPrefix+"*"))
		for _, dir := range locked {
			if !ownedBy(dir, runAs) {
				continue
			}
			if err := sweepFolder(ctx, dir); err != nil {
				return fmt.Errorf("remove %s, left by an earlier run: %w", dir, err)
			}
		}
		unlocked, _ := filepath.Glob(filepath.Join(base, unlockedPrefix+"*"))
		for _, dir := range unlocked {
			info, err := os.Lstat(dir)
			if err != nil || !ownedBy(dir, runAs) || time.Since(info.ModTime()) < unlockedAge {
				continue
			}
			if err := os.RemoveAll(dir); err != nil {
				return fmt.Errorf("remove %s, left by an earlier run: %w", dir, err)
			}
		}
	}
	return nil
}

func ownedBy(dir string, runAs account) bool {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == runAs.uid
}

func sweepFolder(ctx context.Context, dir string) error {
	keeper, err := lockFile(keeperLock(dir))
	if errors.Is(err, errLocked) || errors.Is(err, os.ErrNotExist) {
		return nil // in use, or just removed
	}
	if err != nil {
		return err
	}
	defer keeper.Close()
	server, err := lockFile(serverLock(dir))
	if errors.Is(err, errLocked) {
		server, err = stopOrphan(ctx, dir)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer server.Close()
	return os.RemoveAll(dir)
}

// stopOrphan ends a server that nobody watches and returns its lock.
func stopOrphan(ctx context.Context, dir string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	line, err := postmasterLine(dir, pidLine)
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(line)
	if err != nil {
		return nil, fmt.Errorf("read process id of %s: %w", dir, err)
	}
	// Without its first process a server ends by itself, and the number may be
	// a stranger's by now.
	if runsServer(pid, dir) {
		if err := errors.Join(killAll(pid), removeSharedMemory(dir)); err != nil {
			return nil, err
		}
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		server, err := lockFile(serverLock(dir))
		if !errors.Is(err, errLocked) {
			return server, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for process %d to end: %w", pid, ctx.Err())
		}
	}
}
