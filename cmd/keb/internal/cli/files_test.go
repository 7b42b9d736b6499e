package cli_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKubeconfig_File_IsReplaced(t *testing.T) {
	t.Parallel()
	_, addr := newAPI(t, map[string][]string{"GET /kubeconfig/i-1": {"200 new"}})
	dir := t.TempDir()
	file := filepath.Join(dir, "k.yaml")
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o644))
	require.Equal(t, 0, run(t, "", "kubeconfig", "i-1", "--file", file, "--osb-addr", addr).code)
	info, err := os.Stat(file)
	require.NoError(t, err)
	content, err := os.ReadFile(file)
	if err != nil || string(content) != "new" || info.Mode() != 0o600 {
		t.Errorf("%q with mode %s, %v", content, info.Mode(), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%d files are left, %v", len(left), err)
	}
	if got := run(t, "", "kubeconfig", "i-1", "--file", "/dev/null", "--osb-addr", addr); got.code != 0 {
		t.Errorf("to a device: %+v", got)
	}
	// Like /dev/stdout that is redirected to a file.
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, errors.Join(os.WriteFile(file, []byte("a longer old one"), 0o600), os.Symlink(file, link)))
	require.Equal(t, 0, run(t, "", "kubeconfig", "i-1", "--file", link, "--osb-addr", addr).code)
	target, err := os.Readlink(link)
	require.NoError(t, err)
	if content, err := os.ReadFile(file); err != nil || string(content) != "new" || target != file {
		t.Errorf("to a symbolic link: %q in %s, %v", content, target, err)
	}
}

func TestProvision_TooLargeInput_IsRejected(t *testing.T) {
	t.Parallel()
	expect(t, run(t, strings.Repeat(" ", 4<<20)+body, "provision", "-f", "-"), 1, "", "keb: read standard input: more than 4194304 bytes\n")
}
