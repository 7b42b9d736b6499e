package pglocal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func fakeBinaries(t *testing.T, dir string, programs ...string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, program := range programs {
		require.NoError(t, os.WriteFile(filepath.Join(dir, program), []byte("#!/bin/sh\n"), 0o755))
	}
	real, err := filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	return real
}

func TestFind_SeveralVersions_PrefersPATHThenNewest(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	v9 := fakeBinaries(t, filepath.Join(root, "pg", "9.6", "bin"), "postgres", "initdb")
	v17 := fakeBinaries(t, filepath.Join(root, "pg", "17", "bin"), "postgres", "initdb")
	v16 := fakeBinaries(t, filepath.Join(root, "pg", "16", "bin"), "postgres", "initdb")
	clientOnly := fakeBinaries(t, filepath.Join(root, "client"), "psql", "postgres")
	links := filepath.Join(root, "links")
	require.NoError(t, os.MkdirAll(links, 0o755))
	require.NoError(t, os.Symlink(filepath.Join(v16, "postgres"), filepath.Join(links, "postgres")))
	got, err := find("", []string{"", clientOnly, links}, []string{filepath.Join(root, "pg", "*", "bin")})
	require.NoError(t, err)
	if diff := cmp.Diff([]string{v16, v17, v9}, got); diff != "" {
		t.Errorf("want the folder that PATH links to first, then the newest; diff (-want +got)\n%s", diff)
	}

	got, err = find(v9, []string{v17}, nil)
	if diff := cmp.Diff([]string{v9}, got); diff != "" || err != nil {
		t.Errorf("the folder that is asked for: %v, diff (-want +got)\n%s", err, diff)
	}
}

func TestFind_NoBinaries_NamesAlternatives(t *testing.T) {
	t.Parallel()
	_, err := find("", []string{t.TempDir()}, []string{filepath.Join(t.TempDir(), "*")})
	if !errors.Is(err, ErrNoBinaries) {
		t.Fatalf("got %v, want ErrNoBinaries", err)
	}
	for _, want := range []string{"install", BinEnv, "address of a running server", "downloaded"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	empty := t.TempDir()
	if _, err := find(empty, nil, nil); err == nil || !strings.Contains(err.Error(), BinEnv+"="+empty) {
		t.Errorf("a wrong folder in the variable: got %v", err)
	}
}

func TestEnter_InaccessibleFolder_IsNamed(t *testing.T) {
	t.Parallel()
	id := identity{other: true, uid: 65534, gid: 65534, name: "nobody"}
	if os.Geteuid() != 0 {
		// Without root there is no other user, so an inaccessible folder is an immediate error.
		id = identity{}
	}
	closed := filepath.Join(t.TempDir(), "closed")
	below := filepath.Join(closed, "below")
	require.NoError(t, os.MkdirAll(below, 0o755))
	require.NoError(t, os.Chmod(closed, 0))
	t.Cleanup(func() { _ = os.Chmod(closed, 0o700) })
	_, err := id.enter(testContext(t), "/bin/true", below, nil)
	if err == nil {
		t.Fatal("entered")
	}
	if id.other && !strings.Contains(err.Error(), "user nobody") {
		t.Errorf("got %v", err)
	}
	if id.other && !strings.Contains(err.Error(), "chmod o+x /") {
		t.Errorf("got %v, want the way out", err)
	}
}
