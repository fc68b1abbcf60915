package doctor

import "syscall"

const overlayMagic = 0x794c7630

// layer tells the layer of a container's own, which is gone with it.
func layer(dir string) string {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) == nil && uint32(s.Type) == overlayMagic {
		return "the container's own layer, which is gone with the container"
	}
	return ""
}
