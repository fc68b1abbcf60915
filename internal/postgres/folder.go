package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	folderPrefix    = "weir-pg-"  // a server's folder, locked while anything of it lives
	unlockedPrefix  = "weir-new-" // the same, until its locks are held
	maxSocketLength = 103         // bytes in a Unix socket's path: 103 on macOS, 107 on Linux
	longestSocket   = ".s.PGSQL.65535"
)

// folder is everything one server has on disk, and the two locks that prove
// whether it is still in use. Both locks belong to open files that child
// processes inherit, so the kernel holds them until the last such process has
// gone.
type folder struct {
	dir    string
	server *os.File // held by the owner, the keeper and every process of the server
	keeper *os.File // held by the owner and the keeper
}

func (f *folder) data() string     { return filepath.Join(f.dir, "data") }
func (f *folder) log() string      { return filepath.Join(f.dir, "log") }
func (f *folder) fifo() string     { return filepath.Join(f.dir, "leases") }
func serverLock(dir string) string { return filepath.Join(dir, "lock.server") }
func keeperLock(dir string) string { return filepath.Join(dir, "lock.keeper") }

// bases returns the folders under which a server's folder may lie, best first.
func bases() []string {
	var usable []string
	for _, base := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		sample := filepath.Join(base, folderPrefix+strings.Repeat("x", 16), longestSocket)
		// In a connection URL a comma separates hosts.
		fits := filepath.IsAbs(base) && len(sample) <= maxSocketLength && !strings.Contains(base, ",")
		if fits && !slices.Contains(usable, base) {
			usable = append(usable, base)
		}
	}
	return usable
}

// newFolder makes a locked folder that belongs to the account. It is made by a
// process of that account, so that the kernel decides where the server can
// live: root's own TMPDIR may be closed to it.
func newFolder(ctx context.Context, owner account) (*folder, error) {
	name := strings.ToLower(rand.Text()[:16])
	var refused error
	for _, base := range bases() {
		dir := filepath.Join(base, unlockedPrefix+name)
		cmd := exec.CommandContext(ctx, "/bin/sh", "-c", `mkdir -m 700 -- "$1" && ls -a "$1"`, "sh", dir)
		owner.prepare(cmd)
		if out, err := cmd.CombinedOutput(); err != nil {
			refused = errors.Join(refused, fmt.Errorf("make %s: %w: %s", dir, err, out))
			continue
		}
		f, err := lockFolder(dir, filepath.Join(base, folderPrefix+name))
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		return f, nil
	}
	return nil, fmt.Errorf("find a place for the server's files: %w", refused)
}

// lockFolder takes the locks and then gives the folder the name that sweep
// looks for, so that a folder of that name without locks is dead.
func lockFolder(unlocked, dir string) (*folder, error) {
	server, err := lockFile(serverLock(unlocked))
	if err != nil {
		return nil, err
	}
	keeper, err := lockFile(keeperLock(unlocked))
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	if err := os.Rename(unlocked, dir); err != nil {
		return nil, errors.Join(err, server.Close(), keeper.Close())
	}
	return &folder{dir: dir, server: server, keeper: keeper}, nil
}

// remove deletes the folder and then gives up its locks.
func (f *folder) remove() error {
	err := os.RemoveAll(f.dir)
	return errors.Join(err, f.unlock())
}

// unlock closes this process's hold; the locks stay with the children.
func (f *folder) unlock() error { return errors.Join(f.server.Close(), f.keeper.Close()) }

var errLocked = errors.New("locked by another process")

// lockFile opens path, creating it if need be, and locks it. It returns
// errLocked when another process holds the lock.
func lockFile(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	switch {
	case err == nil:
		return file, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(errLocked, file.Close())
	default:
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
}
