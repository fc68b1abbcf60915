//go:build linux || darwin

package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// supported is nil where journals can be kept.
func supported() *Problem { return nil }

// fault is err as a Problem.
func fault(err error, path, detail string) *Problem {
	return &Problem{Reason: reasonOf(err), Path: path, Detail: detail, Err: err}
}

// errCopyOnWrite is a file system that was found out only by a file on it.
var errCopyOnWrite = errors.New("the file system copies on write, so a full volume could end this process: use ext4, XFS, or best a memory-backed volume (tmpfs)")

func reasonOf(err error) Reason {
	if errors.Is(err, errCopyOnWrite) {
		return BadFilesystem
	}
	for _, known := range [...]struct {
		errno  syscall.Errno
		reason Reason
	}{
		{unix.ENOSPC, DiskFull}, {unix.EDQUOT, Quota}, {unix.EROFS, ReadOnly},
		{unix.EACCES, NoPermission}, {unix.EPERM, NoPermission},
		{unix.ENOENT, NoFolder}, {unix.ENOTDIR, NoFolder},
		{unix.EFBIG, FileSizeLimit}, {unix.EMFILE, TooManyFiles}, {unix.ENFILE, TooManyFiles},
		{unix.ENOMEM, NoMemory},
	} {
		if errors.Is(err, known.errno) {
			return known.reason
		}
	}
	return InputOutput
}

func owner(info fs.FileInfo) (uid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}

// checkFileSize looks at the limit before the kernel does: a write beyond it
// raises SIGXFSZ, which the host may listen for, and which ends a program whose
// main part is not Go.
func checkFileSize(size int64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return fmt.Errorf("read the limit of file sizes: %w", err)
	}
	if uint64(limit.Cur) < uint64(size) {
		return fmt.Errorf("RLIMIT_FSIZE is %d bytes, a segment has %d: %w", limit.Cur, size, unix.EFBIG)
	}
	return nil
}

// tryLock takes the file's lock; false: somebody else has it.
func tryLock(f *os.File) (bool, error) {
	err := ignoringEINTR(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) })
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// unlock gives the lock back at once. Closing the file alone would not: a
// mapping keeps the open file and with it the lock, and so does a child of this
// process between its fork and its exec.
func unlock(f *os.File) error {
	return ignoringEINTR(func() error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) })
}

// openExisting opens a file of the folder for reading and writing. It follows
// no symbolic link and waits for no pipe.
func openExisting(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

func mapShared(f *os.File, size int64) ([]byte, error) {
	mem, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|mapPopulate)
	if err != nil {
		return nil, fmt.Errorf("map: %w", err)
	}
	return mem, nil
}

func unmap(mem []byte) error { return unix.Munmap(mem) }

func ignoringEINTR(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
