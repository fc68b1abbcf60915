//go:build !linux

package journal_test

// Mounts and allocation are tested on Linux.
func volumeChildren() map[string]func() error { return map[string]func() error{} }
