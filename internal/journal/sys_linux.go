package journal

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const mapPopulate = unix.MAP_POPULATE

// holdsBlocks reports file systems that were seen to take stores to mapped,
// written blocks with no room left. Others are refused: Btrfs ends the process
// with SIGBUS then, without copy-on-write as well as with it, because it
// reserves metadata for each store after a write-back; log-structured and
// network file systems have the same need. See statfs(2) for the numbers.
func holdsBlocks(magic uint32) bool {
	switch magic {
	case unix.EXT4_SUPER_MAGIC, // ext2 and ext3 too
		unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.RAMFS_MAGIC,
		unix.OVERLAYFS_SUPER_MAGIC: // what is below it is asked for each file
		return true
	}
	return false
}

func filesystemName(magic uint32) string {
	switch magic {
	case unix.BTRFS_SUPER_MAGIC:
		return "Btrfs"
	case unix.NFS_SUPER_MAGIC:
		return "NFS"
	case unix.FUSE_SUPER_MAGIC:
		return "FUSE or virtiofs"
	case unix.V9FS_MAGIC:
		return "9p"
	}
	return fmt.Sprintf("a file system of type %#x", magic)
}

func checkFilesystem(dir string) *Problem {
	var stat unix.Statfs_t
	if err := ignoringEINTR(func() error { return unix.Statfs(dir, &stat) }); err != nil {
		return fault(err, dir, "the file system of the folder for journals can't be looked at")
	}
	if kind := uint32(stat.Type); !holdsBlocks(kind) {
		return &Problem{Reason: BadFilesystem, Path: dir, Detail: fmt.Sprintf(
			"the folder for journals is on %s, where a full or lost volume could end this process: use ext4, XFS, or best a memory-backed volume (tmpfs)",
			filesystemName(kind))}
	}
	return nil
}

// allocate gives the empty file real blocks.
func allocate(f *os.File, size int64) error {
	if err := refuseCopyOnWrite(f); err != nil {
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

// refuseCopyOnWrite looks through an overlay, which hides the type of what is
// below: only a file system with copy-on-write takes the flag that turns it off.
func refuseCopyOnWrite(f *os.File) error {
	var stat unix.Statfs_t
	if err := ignoringEINTR(func() error { return unix.Fstatfs(int(f.Fd()), &stat) }); err != nil {
		return fmt.Errorf("look at the file system: %w", err)
	}
	if uint32(stat.Type) != unix.OVERLAYFS_SUPER_MAGIC {
		return nil
	}
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags|noCow))
	}
	if err == nil {
		return errCopyOnWrite
	}
	return nil
}
