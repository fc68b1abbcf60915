package journal

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const mapPopulate = unix.MAP_POPULATE

// File systems where a store to a mapped, allocated page may still fault, or
// where a lock is not seen by everybody. See statfs(2) for the numbers; the
// last two are missing there.
const (
	smb2Magic     = 0xfe534d42
	bcachefsMagic = 0xca451a4e
)

func unsafeFilesystem(magic uint32) (name string, unsafe bool) {
	switch magic {
	case unix.NFS_SUPER_MAGIC:
		return "NFS", true
	case unix.CIFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, smb2Magic:
		return "SMB", true
	case unix.FUSE_SUPER_MAGIC:
		return "FUSE or virtiofs", true
	case unix.V9FS_MAGIC:
		return "9p", true
	case unix.CEPH_SUPER_MAGIC:
		return "Ceph", true
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC, unix.CODA_SUPER_MAGIC:
		return "AFS or Coda", true
	case bcachefsMagic:
		return "bcachefs", true
	}
	return "", false
}

func checkFilesystem(dir string) *Problem {
	var stat unix.Statfs_t
	if err := ignoringEINTR(func() error { return unix.Statfs(dir, &stat) }); err != nil {
		return fault(err, dir, "the file system of the folder for journals can't be looked at")
	}
	if name, bad := unsafeFilesystem(uint32(stat.Type)); bad {
		return &Problem{Reason: BadFilesystem, Path: dir, Detail: fmt.Sprintf(
			"the folder for journals is on %s, where a full or lost volume would end this process: use a local or a memory-backed volume", name)}
	}
	return nil
}

// allocate gives the empty file real blocks.
func allocate(f *os.File, size int64) error {
	if err := overwriteInPlace(f); err != nil {
		return err
	}
	err := ignoringEINTR(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil // the zeros that are written next allocate as well
	}
	if err != nil {
		return fmt.Errorf("allocate %d bytes: %w", size, err)
	}
	return nil
}

const noCow = 0x00800000 // FS_NOCOW_FL in linux/fs.h

// overwriteInPlace turns copy-on-write off where the file system has it. On
// Btrfs each store after a write-back would otherwise take a new block, and
// fault when there is none. Elsewhere the flag is unknown and not needed.
func overwriteInPlace(f *os.File) error {
	var stat unix.Statfs_t
	if err := ignoringEINTR(func() error { return unix.Fstatfs(int(f.Fd()), &stat) }); err != nil {
		return fmt.Errorf("look at the file system: %w", err)
	}
	kind := uint32(stat.Type)
	if kind != unix.BTRFS_SUPER_MAGIC && kind != unix.OVERLAYFS_SUPER_MAGIC {
		return nil
	}
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags|noCow))
	}
	if err != nil && kind == unix.BTRFS_SUPER_MAGIC {
		return fmt.Errorf("turn copy-on-write off: %w", err)
	}
	return nil // an overlay's upper layer need not know the flag
}
