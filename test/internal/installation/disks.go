//go:build linux

package installation

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/test/internal/lossyfs"
)

// LossyDisks returns a function for Config.Disk that mounts file systems which lose what was not synced, and these by name. of returns the
// settings of a disk, without its folder, or nil for none. Call it before New: the disks are closed after the installation is removed.
func LossyDisks(t *testing.T, of func(name string) *lossyfs.Config) (disks map[string]*lossyfs.FS, mount func(name, dir string) bool) {
	t.Helper()
	disks = map[string]*lossyfs.FS{}
	t.Cleanup(func() {
		for name, disk := range disks {
			if err := disk.Close(); err != nil {
				t.Errorf("disk of %s: %v", name, err)
			}
		}
	})
	return disks, func(name, dir string) bool {
		cfg := of(name)
		if cfg == nil {
			return false
		}
		cfg.Dir, cfg.AllowOther = dir, os.Geteuid() == 0
		disk, err := lossyfs.Mount(*cfg)
		require.NoError(t, err)
		disks[name] = disk
		return true
	}
}
