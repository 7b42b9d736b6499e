//go:build unix

package test

import (
	"fmt"
	"os"
	"syscall"
)

// sameOwner gives a file the owner and the mode of another.
func sameOwner(as, path string) error {
	info, err := os.Lstat(as)
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := os.Lchown(path, int(owner.Uid), int(owner.Gid)); err != nil {
			return fmt.Errorf("copy the owner: %w", err)
		}
	}
	return os.Chmod(path, info.Mode().Perm())
}
