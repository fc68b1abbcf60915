package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/weirhq/weir/internal/journal"
)

const probeSlots = 64

// journal makes a journal in a folder of its own inside the folder, as an enforcer would, and takes it away again.
func (e *examination) journal() {
	dir := e.cfg.JournalDir
	if dir == "" { // where an enforcer of this user would keep it
		usual, err := journal.DefaultDir()
		if err == nil {
			_, err = os.Stat(usual)
		}
		if err != nil {
			e.ok("journal", "no folder is named, and this user has none: enforcers run elsewhere, or as somebody else")
			return
		}
		dir = usual
	}
	probe, err := os.MkdirTemp(dir, "doctor-")
	if errors.Is(err, os.ErrNotExist) {
		e.wrong("journal", "make the folder on a volume that outlives the process, with mode 0700, for the enforcer's user", "folder %s does not exist", dir)
		return
	}
	if err != nil {
		e.wrong("journal", "give the enforcer's user the folder, and see that the volume has room and is not read-only", "no file can be made in folder %s: %v", dir, err)
		return
	}
	defer func() { _ = os.RemoveAll(probe) }()
	if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o022 != 0 {
		e.wrong("journal", "chmod go-w "+dir, "other users may write to folder %s", dir)
		return
	}
	j, err := journal.Open(journal.Config{Dir: filepath.Join(probe, "journal"), Installation: [16]byte{1}, Node: 1, SegmentSlots: probeSlots})
	if err != nil {
		e.wrong("journal", "name a folder on a local file system that allocates what it is asked for (ext4, XFS, or best a memory-backed volume)", "%v", err)
		return
	}
	problem := j.Stats().Problem
	err = j.Close(true)
	switch where := place(dir); {
	case problem != nil:
		e.wrong("journal", "free space or raise the limit; until then counters live on the heap", "no segment can be had: %v", problem)
	case err != nil:
		e.wrong("journal", "look at the volume's health", "the journal could not be closed: %v", err)
	case where != "":
		e.warn("journal", "name a volume that outlives the container or the service (docs/deployment.md)", "folder %s is %s", dir, where)
	default:
		e.ok("journal", "folder %s: segments are allocated and locked", dir)
	}
}

// place names a folder that goes with the process's surroundings; empty: none of those that are known.
func place(dir string) string {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		real = dir
	}
	if kind := layer(real); kind != "" {
		return kind
	}
	for _, tmp := range []string{"/tmp", "/var/tmp"} {
		if real == tmp || strings.HasPrefix(real, tmp+"/") {
			return "a folder for temporary files, which are cleaned away"
		}
	}
	return ""
}
