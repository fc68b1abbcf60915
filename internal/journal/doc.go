// Package journal keeps counter words in memory-mapped files, so that what a
// process has counted survives a kill -9 of it. It knows bytes and mmap and
// nothing of a database.
//
// A live process is one node. Its journal is a set of files in one folder,
// node-<node>-<segment>.weir, each a header of 4,096 bytes and a fixed number
// of slots of 64 bytes. A slot is one counter: an atomic add to it costs what
// it costs on the heap, and the page cache keeps the store when the process
// dies. Nothing is synced on that path, so a machine that loses power may lose
// the last seconds.
//
// # Never a fault
//
// A store to a page that has no disk block behind it is a SIGBUS when the disk
// is full, and no Go program survives that. Therefore every block of a file is
// allocated, written and synced before the file is mapped; a mapped file is
// never truncated, remapped or unmapped while one of its slots is taken; file
// systems that need room to overwrite a block are refused (on a full Btrfs the
// store faults, on ext4, XFS and tmpfs it does not). When no segment can be had, [Journal.Take] hands out a slot on the
// heap and [Stats] says why.
//
// # Who owns a file
//
// The owner holds a flock on segment 0 for as long as it lives; the lock dies
// with it. That one lock stands for all files of the node, because the usage of
// a key is the sum over all of them and must be read as a whole. Segments are
// made in order under a temporary name, and linked to their own only when they
// are complete; segment 0 counts them. It is removed last, after a mark in its
// header says that the set is settled, so a crash between two removals leaves
// neither a gap to worry about nor a count to be recovered again.
//
// # Crash points
//
// Each change of a slot is a sequence of 64-bit atomic stores, and a kill
// between any two of them leaves a slot that recovery reads rightly:
//
//	take      hash := 0, word, base, key, first half of hash, second half
//	          before the last store the slot is skipped; it holds no count yet
//	count     one compare-and-swap of the word
//	          counted or not counted
//	move base one store, base := total
//	          the total is base + uint32(spent - uint32(base)) before and after
//	release   second half of hash := 0
//	          either the old entry, whose count is acknowledged, or skipped
package journal
