package cli

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWriteFile_FailsHalfway_KeepsOldOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, failed := filepath.Join(dir, "report.xml"), errors.New("no answer")
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
	err := writeFile(file, 0o644, func(to io.Writer) error {
		_, err := io.WriteString(to, "half of the n")
		return errors.Join(err, failed)
	})
	content, readErr := os.ReadFile(file)
	if !errors.Is(err, failed) || readErr != nil || string(content) != "old" {
		t.Errorf("error %v, content %q, %v", err, content, readErr)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
}

func TestWriteFile_NewFile_HasMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []fs.FileMode{0o600, 0o644} {
		file := filepath.Join(t.TempDir(), "file")
		require.NoError(t, writeFile(file, mode, func(io.Writer) error { return nil }))
		info, err := os.Stat(file)
		require.NoError(t, err)
		if info.Mode() != mode {
			t.Errorf("mode %s, want %s", info.Mode(), mode)
		}
	}
}
