package postgres

import (
	"os"
	"path/filepath"
	"strings"
)

// The lines of postmaster.pid are fixed by PostgreSQL (miscadmin.h): the first
// is the process id, the seventh the key and the id of the System V segment
// that marks the data folder as in use, the eighth the server's state.
const (
	pidLine    = 0
	memoryLine = 6
	stateLine  = 7
)

// postmasterLines returns the lines of a server's postmaster.pid; those that
// the file lacks as yet are empty.
func postmasterLines(dir string) ([stateLine + 1]string, error) {
	var lines [stateLine + 1]string
	text, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		return lines, err
	}
	copy(lines[:], strings.Split(string(text), "\n"))
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return lines, nil
}
