package postgres

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// removeSharedMemory removes the segment of a server that was killed. One that
// ended by itself has removed it, and its postmaster.pid too. It must be known
// that the file was written since the machine started.
func removeSharedMemory(dir string) error {
	lines, err := postmasterLines(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	fields := strings.Fields(lines[memoryLine])
	if len(fields) == 0 {
		return nil // killed before it had one
	}
	id, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		return fmt.Errorf("read shared memory of %s: %w", dir, err)
	}
	_, err = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	// The next run of the same server may have removed it.
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EIDRM) {
		return fmt.Errorf("remove shared memory of %s: %w", dir, err)
	}
	return nil
}
