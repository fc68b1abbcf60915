package journal

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const mapPopulate = 0

func checkFilesystem(dir string) *Problem {
	var stat unix.Statfs_t
	if err := ignoringEINTR(func() error { return unix.Statfs(dir, &stat) }); err != nil {
		return fault(err, dir, "the file system of the folder for journals can't be looked at")
	}
	if name := unix.ByteSliceToString(stat.Fstypename[:]); name != "apfs" && name != "hfs" {
		return &Problem{Reason: BadFilesystem, Path: dir, Detail: fmt.Sprintf(
			"the folder for journals is on %q, where a full or lost volume could end this process: use a local volume", name)}
	}
	return nil
}

// allocate gives the empty file real blocks.
func allocate(f *os.File, size int64) error {
	store := unix.Fstore_t{Flags: unix.F_ALLOCATEALL, Posmode: unix.F_PEOFPOSMODE, Length: size}
	err := ignoringEINTR(func() error { return unix.FcntlFstore(f.Fd(), unix.F_PREALLOCATE, &store) })
	if errors.Is(err, unix.ENOTSUP) {
		return nil // the zeros that are written next allocate as well
	}
	if err != nil {
		return fmt.Errorf("allocate %d bytes: %w", size, err)
	}
	return nil
}
