package journal

import "fmt"

// Reason classifies a Problem; its text is fit for a metric's label.
type Reason string

// Why a slot is not in a file.
const (
	HeapOnly       Reason = "heap_only"              // asked for by Heap
	Closed         Reason = "closed"                 // Take after Close
	DiskFull       Reason = "disk_full"              // ENOSPC
	Quota          Reason = "quota"                  // EDQUOT
	ReadOnly       Reason = "read_only"              // EROFS
	NoPermission   Reason = "no_permission"          // EACCES, EPERM
	NoFolder       Reason = "no_folder"              // it is missing, or no folder
	InsecureFolder Reason = "insecure_folder"        // others may write to it
	FileSizeLimit  Reason = "file_size_limit"        // RLIMIT_FSIZE, EFBIG
	TooManyFiles   Reason = "too_many_files"         // EMFILE, ENFILE
	NoMemory       Reason = "no_memory"              // ENOMEM
	Slow           Reason = "slow"                   // the disk did not answer in time
	SlotLimit      Reason = "slot_limit"             // a journal holds no more
	NodeInUse      Reason = "node_in_use"            // files of this node exist
	BadFilesystem  Reason = "unsupported_filesystem" // a store there may fault
	BadPlatform    Reason = "unsupported_platform"   // neither Linux nor macOS
	InvalidConfig  Reason = "invalid_config"         // a field of Config
	InputOutput    Reason = "io"                     // any other error
)

// Why a file was left where it is.
const (
	Foreign    Reason = "foreign"      // of another installation
	NewFormat  Reason = "newer_format" // of a newer version
	Torn       Reason = "torn"         // damaged, or no journal
	Incomplete Reason = "incomplete"   // a segment of the node is missing
	Misplaced  Reason = "misplaced"    // its name is not what its header says
	Unreadable Reason = "unreadable"   // can't be opened, locked or read
	Rejected   Reason = "rejected"     // the caller of Recover refused it
	Stuck      Reason = "stuck"        // recovered, but could not be removed
)

// Problem says what is wrong with a file or folder and what to do about it.
type Problem struct {
	Reason Reason
	Path   string // the file or folder; empty: neither
	Detail string // what is wrong and what to do, for an operator
	Err    error  // the cause; may be nil
}

// Error is the whole message on one line; the path is quoted.
func (p *Problem) Error() string {
	text := p.Detail
	if p.Err != nil {
		text = fmt.Sprintf("%s: %v", text, p.Err)
	}
	if p.Path == "" {
		return "journal: " + text
	}
	return fmt.Sprintf("journal %q: %s", p.Path, text)
}

// Unwrap is the cause.
func (p *Problem) Unwrap() error { return p.Err }

// at is the problem with its place filled in.
func (p *Problem) at(path string) *Problem {
	p.Path = path
	return p
}
