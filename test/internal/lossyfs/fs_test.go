//go:build linux

package lossyfs_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/test/internal/lossyfs"
)

// writerVariable makes this program a writer instead of a test: it contains the file, and "sync" or "forget".
const writerVariable = "KEB_LOSSYFS_WRITER"

func TestMain(m *testing.M) {
	if text := os.Getenv(writerVariable); text != "" {
		path, how, _ := strings.Cut(text, " ")
		os.Exit(writeLines(path, how == "sync"))
	}
	goleak.VerifyTestMain(m)
}

// writeLines appends numbers to a file until it is killed, and prints each that it takes for written.
func writeLines(path string, sync bool) int {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	for i := 0; err == nil; i++ {
		if _, err = fmt.Fprintln(f, i); err == nil && sync {
			err = f.Sync()
		}
		if err == nil {
			fmt.Println(i)
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// bundle is a mounted file system with the helpers of the tests.
type bundle struct {
	*testing.T
	fs  *lossyfs.FS
	dir string
}

func setup(t *testing.T, cfg lossyfs.Config) *bundle {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skipf("FUSE is missing: %v", err)
	}
	cfg.Dir = t.TempDir()
	f, err := lossyfs.Mount(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return &bundle{t, f, cfg.Dir}
}

func (b *bundle) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bundle) write(name, text string) {
	b.Helper()
	require.NoError(b, os.WriteFile(b.path(name), []byte(text), 0o640))
}

// sync calls fsync for files and folders.
func (b *bundle) sync(names ...string) {
	b.Helper()
	for _, name := range names {
		f, err := os.Open(b.path(name))
		require.NoError(b, err)
		require.NoError(b, errors.Join(f.Sync(), f.Close()))
	}
}

func (b *bundle) cut() lossyfs.Loss {
	b.Helper()
	loss := lossyfs.Cut(lossyfs.Damage{}, nil, b.fs)[0]
	b.fs.Release()
	require.NoError(b, b.fs.Restore(b.Context()))
	return loss
}

// tree returns the content of all files by path; that of a folder is "/".
func (b *bundle) tree() map[string]string {
	b.Helper()
	found := map[string]string{}
	require.NoError(b, filepath.WalkDir(b.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == b.dir {
			return err
		}
		name, _ := filepath.Rel(b.dir, path)
		if d.IsDir() {
			found[name] = "/"
			return nil
		}
		raw, err := os.ReadFile(path)
		found[name] = string(raw)
		return err
	}))
	return found
}

func (b *bundle) want(want map[string]string) {
	b.Helper()
	if diff := cmp.Diff(want, b.tree()); diff != "" {
		b.Errorf("after the cut (-want +got):\n%s", diff)
	}
}

func TestCut_FileContent_IsThatOfTheLastSync(t *testing.T) {
	t.Parallel()
	b := setup(t, lossyfs.Config{Strict: true})
	b.write("synced", "old")
	b.write("rewritten", "old")
	b.write("longer", "old")
	b.write("shorter", "old old old")
	b.sync("synced", "rewritten", "longer", "shorter", "")
	b.write("rewritten", "new")
	f, err := os.OpenFile(b.path("longer"), os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString(" and new")
	require.NoError(t, errors.Join(err, f.Close()))
	require.NoError(t, os.Truncate(b.path("shorter"), 3))
	require.NoError(t, os.Chmod(b.path("synced"), 0o600))
	if diff := cmp.Diff(map[string]string{"synced": "old", "rewritten": "new", "longer": "old and new", "shorter": "old"}, b.tree()); diff != "" {
		t.Errorf("before the cut (-want +got):\n%s", diff)
	}
	loss := b.cut()
	b.want(map[string]string{"synced": "old", "rewritten": "old", "longer": "old", "shorter": "old old old"})
	info, err := os.Stat(b.path("synced"))
	require.NoError(t, err)
	if info.Mode().Perm() != 0o640 {
		t.Errorf("the mode of the synced file is %v, want 0640", info.Mode())
	}
	if loss.Files != 4 || loss.Bytes != 3+11+3 {
		t.Errorf("the loss is %+v, want 4 files and 17 bytes", loss)
	}
}

func TestCut_Entries_FollowTheirFolder(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{true, false} {
		b := setup(t, lossyfs.Config{Strict: strict})
		for _, dir := range []string{"a", "b", "c"} {
			require.NoError(t, os.Mkdir(b.path(dir), 0o755))
		}
		b.write("a/renamed", "1")
		b.write("a/removed", "2")
		b.write("b/moved", "3")
		b.sync("a/renamed", "a/removed", "b/moved", "a", "b", "c", "")

		require.NoError(t, os.Rename(b.path("a/renamed"), b.path("a/new name")))
		require.NoError(t, os.Remove(b.path("a/removed")))
		require.NoError(t, os.Mkdir(b.path("a/created"), 0o755))
		b.cut()
		b.want(map[string]string{"a": "/", "b": "/", "c": "/", "a/renamed": "1", "a/removed": "2", "b/moved": "3"})

		require.NoError(t, os.Rename(b.path("a/renamed"), b.path("a/new name")))
		require.NoError(t, os.Remove(b.path("a/removed")))
		require.NoError(t, os.Link(b.path("a/new name"), b.path("a/second name")))
		require.NoError(t, os.Symlink("new name", b.path("a/link")))
		b.sync("a")
		require.NoError(t, os.Rename(b.path("b/moved"), b.path("c/moved")))
		b.cut()
		b.want(map[string]string{"a": "/", "b": "/", "c": "/", "a/new name": "1", "a/second name": "1", "a/link": "1", "b/moved": "3"})

		// A move is never half of it, whichever folder is synced.
		require.NoError(t, os.Rename(b.path("b/moved"), b.path("c/moved")))
		b.sync("b")
		b.cut()
		b.want(map[string]string{"a": "/", "b": "/", "c": "/", "a/new name": "1", "a/second name": "1", "a/link": "1", "c/moved": "3"})
	}
}

func TestCut_NewFileSyncedWithoutItsFolder_SurvivesUnlessStrict(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{true, false} {
		b := setup(t, lossyfs.Config{Strict: strict})
		require.NoError(t, os.Mkdir(b.path("dir"), 0o755))
		b.write("dir/earlier", "not synced")
		b.write("dir/file", "synced")
		b.sync("dir/file")
		b.write("dir/later", "not synced")
		b.cut()
		want := map[string]string{"dir": "/", "dir/earlier": "", "dir/file": "synced"}
		if strict {
			want = map[string]string{}
		}
		b.want(want)
	}
}

func TestCut_ReplacedBeforeItsContentWasSynced_IsEmpty(t *testing.T) {
	t.Parallel()
	b := setup(t, lossyfs.Config{Strict: true})
	b.write("file", "old")
	b.sync("file", "")
	b.write("file.new", "new")
	require.NoError(t, os.Rename(b.path("file.new"), b.path("file")))
	b.sync("")
	b.cut()
	b.want(map[string]string{"file": ""})
}

func TestCut_FileOpenedForSync_IsDurableWithEachWrite(t *testing.T) {
	t.Parallel()
	for _, flag := range []int{syscall.O_SYNC, syscall.O_DSYNC} {
		b := setup(t, lossyfs.Config{})
		f, err := os.OpenFile(b.path("file"), os.O_CREATE|os.O_WRONLY|flag, 0o600)
		require.NoError(t, err)
		_, err = f.WriteString("text")
		require.NoError(t, errors.Join(err, f.Close()))
		b.cut()
		b.want(map[string]string{"file": "text"})
	}
}

func TestCut_Operations_WaitForReleaseAndFail(t *testing.T) {
	t.Parallel()
	b := setup(t, lossyfs.Config{})
	b.write("file", "old")
	b.sync("file", "")
	f, err := os.OpenFile(b.path("file"), os.O_WRONLY, 0)
	require.NoError(t, err)
	lossyfs.Cut(lossyfs.Damage{}, nil, b.fs)
	failed := make(chan error)
	go func() {
		_, err := f.WriteString("new")
		failed <- errors.Join(err, f.Close())
	}()
	select {
	case err := <-failed:
		t.Fatalf("an operation ended (%v) while the power was cut", err)
	case <-time.After(100 * time.Millisecond):
	}
	b.fs.Release()
	if err := <-failed; !errors.Is(err, syscall.EIO) {
		t.Errorf("got %v, want an I/O error", err)
	}
	require.NoError(t, b.fs.Restore(t.Context()))
	b.want(map[string]string{"file": "old"})
}

// TestCut_Application_LosesOnlyWhatItDoesNotSync kills a process that syncs what it acknowledges, and one that does not.
func TestCut_Application_LosesOnlyWhatItDoesNotSync(t *testing.T) {
	t.Parallel()
	const lines = 500
	for _, sync := range []bool{true, false} {
		b := setup(t, lossyfs.Config{Strict: true, SyncTime: 100 * time.Microsecond})
		b.write("log", "")
		b.sync("log", "")
		for round := range 3 {
			how := "forget"
			if sync {
				how = "sync"
			}
			writer := exec.CommandContext(t.Context(), os.Args[0])
			writer.Env = append(os.Environ(), writerVariable+"="+b.path("log")+" "+how)
			out, err := writer.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, writer.Start())
			acknowledged := -1
			for scanner := bufio.NewScanner(out); scanner.Scan(); {
				if acknowledged, err = strconv.Atoi(scanner.Text()); err != nil || acknowledged == lines {
					break
				}
			}
			require.NoError(t, err)
			loss := lossyfs.Cut(lossyfs.Damage{}, nil, b.fs)[0]
			require.NoError(t, writer.Process.Kill())
			b.fs.Release()
			_ = writer.Wait() // it was killed
			require.NoError(t, b.fs.Restore(t.Context()))
			raw, err := os.ReadFile(b.path("log"))
			require.NoError(t, err)
			kept := bytes.Count(raw, []byte("\n"))
			switch {
			case acknowledged < lines:
				t.Fatalf("the writer ended after %d lines", acknowledged)
			case !sync && kept != 0:
				t.Errorf("round %d: %d lines survived without a sync, want none", round, kept)
			case !sync && loss.Bytes == 0:
				t.Errorf("round %d: nothing was lost without a sync", round)
			case sync && kept <= acknowledged*(round+1):
				t.Errorf("round %d: %d lines survived, want at least %d", round, kept, acknowledged*(round+1)+1)
			}
		}
	}
}

func TestFill_NewContent_FailsUntilThereIsSpace(t *testing.T) {
	t.Parallel()
	b := setup(t, lossyfs.Config{})
	b.write("file", "text")
	b.fs.Fill(true)
	b.write("file", "") // the kernel truncates a file, and gives its page back
	for name, err := range map[string]error{
		"more content": os.WriteFile(b.path("file"), []byte("more"), 0o640),
		"a new file":   os.WriteFile(b.path("new"), []byte("content"), 0o640),
	} {
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: %v, want %v", name, err, syscall.ENOSPC)
		}
	}
	b.fs.Fill(false)
	b.write("file", "more")
	b.sync("file", ".")
	b.cut()
	b.want(map[string]string{"file": "more", "new": ""})
}

func TestFS_SpecialCases_AreThoseOfAFileSystem(t *testing.T) {
	t.Parallel()
	b := setup(t, lossyfs.Config{})
	require.NoError(t, os.MkdirAll(b.path("dir/below"), 0o755))
	b.write("file", "text")
	f, err := os.OpenFile(b.path("file"), os.O_RDWR, 0)
	require.NoError(t, err)
	for what, err := range map[string]error{
		"remove a folder with entries":   os.Remove(b.path("dir")),
		"replace a file with a folder":   os.Rename(b.path("dir"), b.path("file")),
		"create a file that is there":    os.Mkdir(b.path("file"), 0o755),
		"open what is missing":           os.Chmod(b.path("missing"), 0o600),
		"link to a name that is in use":  os.Link(b.path("file"), b.path("dir")),
		"rename what is missing":         os.Rename(b.path("missing"), b.path("other")),
		"replace a folder with entries":  os.Rename(b.path("dir/below"), b.path("dir")),
		"remove an entry that is absent": os.Remove(b.path("dir/missing")),
	} {
		if err == nil {
			t.Errorf("%s: succeeded", what)
		}
	}
	// A removed file remains usable until it is closed.
	require.NoError(t, os.Remove(b.path("file")))
	_, err = f.WriteAt([]byte("T"), 0)
	require.NoError(t, err)
	raw := make([]byte, 4)
	_, err = f.ReadAt(raw, 0)
	require.NoError(t, errors.Join(err, f.Sync(), f.Close()))
	if string(raw) != "Text" {
		t.Errorf("the removed file contains %q, want Text", raw)
	}
	for i := range 2000 {
		b.write(fmt.Sprintf("dir/%04d", i), "")
	}
	entries, err := os.ReadDir(b.path("dir"))
	require.NoError(t, err)
	if len(entries) != 2001 || !slices.IsSortedFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) }) {
		t.Errorf("%d entries, want 2001 different ones", len(entries))
	}
}
