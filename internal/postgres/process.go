package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// signal sends sig to a process. One that is gone already is no error.
func signal(pid int, sig syscall.Signal) error {
	if pid <= 1 {
		return fmt.Errorf("send %v to process %d: not a server", sig, pid)
	}
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", sig, pid, err)
	}
	return nil
}

// children returns the processes whose parent is pid. A server's backends are
// all children of its first process, each in a session of its own, so there is
// no group to signal.
func children(pid int) ([]int, error) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		return childrenFromPS(pid)
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // it ended meanwhile
		}
		// "PID (NAME) STATE PPID …", and a name may hold anything.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if err != nil {
			return nil, err
		}
		found = append(found, child)
	}
	return found, nil
}

func childrenFromPS(pid int) ([]int, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=", "-o", "ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []int
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		child, err := strconv.Atoi(fields[0])
		if err != nil {
			return nil, fmt.Errorf("read process list: %w", err)
		}
		found = append(found, child)
	}
	return found, nil
}

// runsServer says whether the process is the first one of the server in dir.
func runsServer(pid int, dir string) bool {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		// Not Linux, or gone; ps says nothing about one that is gone.
		args, err = exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	}
	return err == nil && bytes.Contains(args, []byte(filepath.Join(dir, "data")))
}

// stopAll freezes a server: first the process that could start others.
func stopAll(pid int) error {
	if err := signal(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	return signalChildren(pid, syscall.SIGSTOP)
}

// resumeAll undoes stopAll.
func resumeAll(pid int) error {
	return errors.Join(signalChildren(pid, syscall.SIGCONT), signal(pid, syscall.SIGCONT))
}

// killAll ends a server as a crash would, without a chance to write anything.
func killAll(pid int) error {
	if err := signal(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	err := signalChildren(pid, syscall.SIGKILL)
	return errors.Join(err, signal(pid, syscall.SIGKILL))
}

func signalChildren(pid int, sig syscall.Signal) error {
	found, err := children(pid)
	if err != nil {
		return err
	}
	for _, child := range found {
		err = errors.Join(err, signal(child, sig))
	}
	return err
}
