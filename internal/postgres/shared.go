package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// defaultLinger is how long a shared server waits for another owner after the last one
// has gone: about the time in which go test links the next package's tests.
const defaultLinger = 5 * time.Second

// Lease is one process's hold on a shared server. The server lives as long as
// any lease of any process on it does, and a few seconds longer.
type Lease struct {
	dir  string
	pipe *os.File
}

// Join returns a lease on the server that this user's processes share under
// name, and starts it first if there is none. name is made of small letters,
// digits and dashes; processes that use the same name must give the same
// options, of which TCP is not supported. ctx bounds the call only. A lease
// ends with [Lease.Release], or with the process.
func Join(ctx context.Context, name string, o Options) (*Lease, error) {
	lease, err := join(ctx, name, o)
	if err != nil {
		return nil, fmt.Errorf("join shared PostgreSQL: %w", err)
	}
	return lease, nil
}

// URL returns the connection URL of a database, as [Server.URL] does.
func (l *Lease) URL(database string) string { return socketURL(l.dir, socketPort, database) }

// Release gives up the hold. The lease must not be used afterwards.
func (l *Lease) Release() error {
	if err := l.pipe.Close(); err != nil {
		return fmt.Errorf("release shared PostgreSQL: %w", err)
	}
	return nil
}

func join(ctx context.Context, name string, o Options) (*Lease, error) {
	if o.TCP {
		return nil, errors.New("a shared server listens on its socket only")
	}
	if !regexp.MustCompile(`^[a-z0-9-]{1,40}$`).MatchString(name) {
		return nil, fmt.Errorf("name %q is not made of small letters, digits and dashes", name)
	}
	registry, err := ownRegistry()
	if err != nil {
		return nil, err
	}
	lock, err := awaitLock(ctx, filepath.Join(registry, name+".lock"))
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	current := filepath.Join(registry, name+".folder")
	dir, err := os.ReadFile(current)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if len(dir) > 0 {
		lease, err := takeLease(string(dir))
		if err == nil || !isGone(err) {
			return lease, err
		}
	}
	lease, err := startShared(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(current, []byte(lease.dir), 0o600); err != nil {
		return nil, errors.Join(err, lease.Release())
	}
	return lease, nil
}

// takeLease opens the pipe of a running server for writing. It fails with an
// error for which isGone is true when there is none.
func takeLease(dir string) (*Lease, error) {
	pipe, err := os.OpenFile((&folder{dir: dir}).fifo(), os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := pipe.Stat()
	if err == nil && info.Mode()&os.ModeNamedPipe == 0 {
		err = fmt.Errorf("%s is not a named pipe: %w", pipe.Name(), syscall.ENXIO)
	}
	if err == nil {
		_, err = pipe.WriteString("joined\n")
	}
	if err != nil {
		return nil, errors.Join(err, pipe.Close())
	}
	return &Lease{dir: dir, pipe: pipe}, nil
}

// isGone tells an absent server (no pipe, or nobody who reads it) from a fault.
func isGone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.EPIPE)
}

func startShared(ctx context.Context, o Options) (*Lease, error) {
	c, err := newCluster(ctx, o)
	if err != nil {
		return nil, err
	}
	lease, err := c.launchShared(ctx, cmp.Or(o.Linger, defaultLinger))
	if err != nil {
		// If the keeper runs, it removes the folder, for want of leases; if
		// not, the next start does.
		return nil, errors.Join(err, c.folder.unlock())
	}
	// The keeper has the locks now.
	return lease, c.folder.unlock()
}

func (c *cluster) launchShared(ctx context.Context, linger time.Duration) (*Lease, error) {
	fifo := c.folder.fifo()
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		return nil, fmt.Errorf("make %s: %w", fifo, err)
	}
	if err := os.Chown(fifo, c.runAs.uid, c.runAs.gid); err != nil {
		return nil, err
	}
	// Opening one end of a named pipe waits for the other, so both are opened
	// at once to begin with.
	both, err := os.OpenFile(fifo, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer both.Close()
	reading, err := os.OpenFile(fifo, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer reading.Close()
	lease, err := takeLease(c.folder.dir)
	if err != nil {
		return nil, err
	}
	k, err := startKeeper(c, reading, fifo, linger)
	if err != nil {
		return nil, errors.Join(err, lease.Release())
	}
	// It outlives this process, so nobody here waits for it.
	if err := errors.Join(k.readPid(ctx), k.cmd.Process.Release()); err != nil {
		return nil, errors.Join(err, lease.Release())
	}
	if err := c.awaitReady(ctx, k.pid, lease.URL("postgres"), nil); err != nil {
		return nil, errors.Join(err, lease.Release())
	}
	return lease, nil
}

// ownRegistry returns the folder in which this user's processes find each
// other's servers. It lies under a name that others could take first, so it
// must be ours and closed to them.
func ownRegistry() (string, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("weir-%d", os.Geteuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s is not a folder of this user with mode 0700: remove it, or set TMPDIR to another place", dir)
	}
	return dir, nil
}

// awaitLock locks path, waiting for other processes until ctx ends.
func awaitLock(ctx context.Context, path string) (*os.File, error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		lock, err := lockFile(path)
		if !errors.Is(err, errLocked) {
			return lock, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s: %w", strings.TrimSpace(path), ctx.Err())
		}
	}
}
