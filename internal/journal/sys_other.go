//go:build !linux && !darwin

package journal

import (
	"io/fs"
	"os"
	"runtime"
)

func supported() *Problem {
	return &Problem{Reason: BadPlatform, Detail: "counts can't be kept in files on " + runtime.GOOS +
		": run without a journal, or on Linux or macOS"}
}

func fault(err error, path, detail string) *Problem {
	return &Problem{Reason: InputOutput, Path: path, Detail: detail, Err: err}
}

func owner(fs.FileInfo) (int, bool)             { return 0, false }
func checkFileSize(int64) error                 { return supported() }
func tryLock(*os.File) (bool, error)            { return false, supported() }
func unlock(*os.File) error                     { return supported() }
func openExisting(string) (*os.File, error)     { return nil, supported() }
func mapShared(*os.File, int64) ([]byte, error) { return nil, supported() }
func unmap([]byte) error                        { return supported() }
func checkFilesystem(string) *Problem           { return supported() }
func allocate(*os.File, int64) error            { return supported() }
