package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// DefaultDir is the folder for journals: the first of $STATE_DIRECTORY (set by
// systemd), else weir in $XDG_STATE_HOME, else .local/state/weir in the user's
// home. A relative path in the environment is an error.
func DefaultDir() (string, error) {
	first, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":")
	if first != "" {
		return absolute("STATE_DIRECTORY", first)
	}
	if state := os.Getenv("XDG_STATE_HOME"); state != "" {
		return absolute("XDG_STATE_HOME", filepath.Join(state, "weir"))
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", &Problem{Reason: NoFolder, Err: err,
			Detail: "no folder to keep counts in: name one in the configuration, or set STATE_DIRECTORY"}
	}
	return absolute("HOME", filepath.Join(home, ".local", "state", "weir"))
}

func absolute(variable, dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", &Problem{Reason: NoFolder, Path: dir, Detail: "$" + variable + " must hold an absolute path"}
	}
	return filepath.Clean(dir), nil
}

// checkDir refuses a folder in which somebody else could shorten a mapped file
// or put a made-up one.
func checkDir(dir string) *Problem {
	info, err := os.Stat(dir)
	if err != nil {
		return fault(err, dir, "the folder for journals can't be used")
	}
	if !info.IsDir() {
		return &Problem{Reason: NoFolder, Path: dir, Detail: "the place for journals is a file; name a folder"}
	}
	if info.Mode().Perm()&0o022 != 0 {
		return &Problem{Reason: InsecureFolder, Path: dir, Detail: fmt.Sprintf(
			"other users may write to the folder for journals (mode %#o): chmod go-w it, or name a subfolder, which is made with mode 0700",
			info.Mode().Perm())}
	}
	if uid, ok := owner(info); ok && uid != 0 && uid != os.Geteuid() {
		return &Problem{Reason: InsecureFolder, Path: dir, Detail: fmt.Sprintf(
			"the folder for journals belongs to user %d, this process runs as user %d: name a folder of its own", uid, os.Geteuid())}
	}
	return nil
}

const suffix = ".weir"

func segmentPath(dir string, node int64, segment uint32) string {
	return filepath.Join(dir, fmt.Sprintf("node-%d-%d%s", node, segment, suffix))
}

func draftPath(dir string, node int64, segment uint32, attempt int) string {
	return segmentPath(dir, node, segment) + ".new" + strconv.Itoa(attempt)
}

// parseName reads the name that segmentPath gives, and no other spelling.
func parseName(name string) (node int64, segment uint32, ok bool) {
	middle, ok := strings.CutPrefix(strings.TrimSuffix(name, suffix), "node-")
	if !ok {
		return 0, 0, false
	}
	first, second, ok := strings.Cut(middle, "-")
	if !ok {
		return 0, 0, false
	}
	node, err1 := strconv.ParseInt(first, 10, 64)
	n, err2 := strconv.ParseUint(second, 10, 32)
	if err1 != nil || err2 != nil || node <= 0 || n >= maxSegments {
		return 0, 0, false
	}
	return node, uint32(n), filepath.Base(segmentPath("", node, uint32(n))) == name
}

// isDraft reports a name that draftPath gives.
func isDraft(name string) bool {
	i := strings.LastIndex(name, suffix+".new")
	if i < 0 {
		return false
	}
	_, _, ok := parseName(name[:i+len(suffix)])
	_, err := strconv.ParseUint(name[i+len(suffix+".new"):], 10, 8)
	return ok && err == nil
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// samePlace reports that the path still leads to the open file.
func samePlace(f *os.File, path string) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(opened, there)
}
