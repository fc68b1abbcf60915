package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
		entries, err := os.ReadDir(base)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
			continue // nor can a server's folder be there
		}
		if err != nil {
			return fmt.Errorf("look for what earlier runs left: %w", err)
		}
		for _, entry := range entries {
			dir := filepath.Join(base, entry.Name())
			if err := sweepEntry(ctx, dir, runAs); err != nil {
				return fmt.Errorf("remove %s, left by an earlier run: %w", dir, err)
			}
		}
	}
	return nil
}

func sweepEntry(ctx context.Context, dir string, runAs account) error {
	name := filepath.Base(dir)
	switch {
	case strings.HasPrefix(name, folderPrefix) && ownedBy(dir, runAs):
		return sweepFolder(ctx, dir)
	case strings.HasPrefix(name, unlockedPrefix) && ownedBy(dir, runAs):
		info, err := os.Lstat(dir)
		if errors.Is(err, os.ErrNotExist) {
			return nil // it just got its name
		}
		if err != nil {
			return err
		}
		if time.Since(info.ModTime()) < unlockedAge {
			return nil // about to get its name
		}
		return os.RemoveAll(dir)
	default:
		return nil
	}
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
	if errors.Is(err, errLocked) || errors.Is(err, os.ErrNotExist) {
		return nil // about to end; the next start looks again
	}
	if err != nil {
		return err
	}
	defer server.Close()
	return os.RemoveAll(dir)
}

// stopOrphan ends a server that nobody watches and returns its lock, or
// errLocked if the server's first process has gone: the others then follow by
// themselves, and its number may be a stranger's by now.
func stopOrphan(ctx context.Context, dir string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	lines, err := postmasterLines(dir)
	if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(lines[pidLine])
	if err != nil {
		return nil, fmt.Errorf("read process id of %s: %w", dir, err)
	}
	if !runsServer(pid, dir) {
		return nil, errLocked
	}
	if err := errors.Join(killAll(pid), removeSharedMemory(dir)); err != nil {
		return nil, err
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
