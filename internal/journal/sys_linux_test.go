package journal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestFileSystemsWhereAStoreMayFaultAreRefused(t *testing.T) {
	t.Parallel()
	for _, magic := range []uint32{unix.BTRFS_SUPER_MAGIC, unix.NFS_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.FUSE_SUPER_MAGIC, unix.V9FS_MAGIC, unix.F2FS_SUPER_MAGIC} {
		require.False(t, holdsBlocks(magic), "%#x", magic)
		require.NotEmpty(t, filesystemName(magic))
	}
	for _, magic := range []uint32{unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.RAMFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC} {
		require.True(t, holdsBlocks(magic), "%#x", magic)
	}
	// The numbers are 32 bits wide on every machine, whatever the type of the field.
	require.Nil(t, checkFilesystem(t.TempDir()))
	p := checkFilesystem(filepath.Join(t.TempDir(), "missing"))
	require.Equal(t, NoFolder, p.Reason)
	require.ErrorIs(t, p, os.ErrNotExist)
}

func TestErrorsAreClassified(t *testing.T) {
	t.Parallel()
	for errno, reason := range map[error]Reason{
		unix.ENOSPC: DiskFull, unix.EDQUOT: Quota, unix.EROFS: ReadOnly, unix.EACCES: NoPermission, unix.EPERM: NoPermission,
		unix.ENOENT: NoFolder, unix.ENOTDIR: NoFolder, unix.EFBIG: FileSizeLimit, unix.EMFILE: TooManyFiles, unix.ENFILE: TooManyFiles,
		unix.ENOMEM: NoMemory, unix.EIO: InputOutput,
	} {
		p := fault(&os.PathError{Op: "open", Path: "x", Err: errno}, "/x", "it can't be used")
		require.Equal(t, reason, p.Reason)
		require.ErrorIs(t, p, errno)
	}
}

// Every block of a new file is there, and written, before the file is used.
func TestANewSegmentHasAllItsBlocks(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "journals")
	require.NoError(t, os.Mkdir(dir, 0o700))
	seg, f, p := createSegment(dir, header{installation: [16]byte{1}, node: 1, slots: 4096})
	require.Nil(t, p)
	var stat unix.Stat_t
	require.NoError(t, unix.Fstat(int(f.Fd()), &stat))
	require.Equal(t, int64(headerSize+4096*slotSize), stat.Size)
	require.GreaterOrEqual(t, stat.Blocks*512, stat.Size)
	require.NoError(t, unmap(seg.mem))
	require.NoError(t, f.Close())
}
