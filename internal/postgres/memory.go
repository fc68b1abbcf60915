package postgres

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The lines of postmaster.pid are fixed by PostgreSQL (miscadmin.h): the first
// is the process id, the seventh the key and the id of the System V segment
// that marks the data folder as in use.
const (
	pidLine    = 0
	memoryLine = 6
)

// removeSharedMemory removes the segment of a server that was killed. One that
// ended by itself has removed it, and its postmaster.pid too. It must be known
// that the file was written since the machine started.
func removeSharedMemory(dir string) error {
	line, err := postmasterLine(dir, memoryLine)
	if errors.Is(err, os.ErrNotExist) || line == "" {
		return nil
	}
	if err != nil {
		return err
	}
	fields := strings.Fields(line)
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

// postmasterLine returns one line of a server's postmaster.pid, or "" if the
// file has no such line yet.
func postmasterLine(dir string, number int) (string, error) {
	text, err := os.ReadFile(postmasterPid(dir))
	if err != nil {
		return "", err
	}
	lines := strings.Split(string(text), "\n")
	if number >= len(lines) {
		return "", nil
	}
	return strings.TrimSpace(lines[number]), nil
}
