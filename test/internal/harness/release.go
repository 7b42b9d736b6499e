package harness

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Release is a release of this repository, whose programs a test runs beside those of the tree.
type Release struct {
	// Version is that of the CHANGELOG, without "v", and Commit the one that was released.
	Version, Commit string
	// Dir has the files of the commit.
	Dir string
}

// releases are the sections of CHANGELOG.md, the newest first, and stated their commits in its link references.
var (
	releases = regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+) - \d{4}-\d{2}-\d{2}$`)
	stated   = regexp.MustCompile(`(?m)^\[(\d+\.\d+\.\d+)\]: \S+/commit/([0-9a-f]{40})$`)
)

// LastRelease returns the newest release of CHANGELOG.md that is not the checked out commit. Its commit is that of the tag; a clone without tags
// finds it in the link references of the page. The files go into .keb/releases, where later runs find them. If the clone does not have the
// commit because it is shallow, the test is skipped.
func LastRelease(t testing.TB, root string) *Release {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	require.NoError(t, err)
	commits := map[string]string{}
	for _, m := range stated.FindAllStringSubmatch(string(raw), -1) {
		commits[m[1]] = m[2]
	}
	head, err := git(root, "rev-parse", "HEAD")
	if err != nil {
		t.Skipf("the files are no clone of the repository, so there is no last release to run: %v", err)
	}
	for _, m := range releases.FindAllStringSubmatch(string(raw), -1) {
		r := &Release{Version: m[1], Commit: commits[m[1]]}
		if tagged, err := git(root, "rev-parse", "--verify", "--quiet", "refs/tags/v"+r.Version+"^{commit}"); err == nil {
			if r.Commit != "" && r.Commit != tagged {
				t.Fatalf("the tag v%s is commit %s, and CHANGELOG.md has [%s]: ...commit/%s", r.Version, tagged, r.Version, r.Commit)
			}
			r.Commit = tagged
		}
		if r.Commit == "" || r.Commit == head {
			continue // this tree is that release
		}
		if _, err := git(root, "cat-file", "-e", r.Commit+"^{commit}"); err != nil {
			t.Skipf("the clone has no commit %s, which is release %s: fetch it (git fetch --unshallow)", r.Commit, r.Version)
		}
		require.NoError(t, r.extract(root))
		return r
	}
	t.Fatal("CHANGELOG.md has no release before this one")
	return nil
}

// extract writes the files of the commit into .keb/releases, unless they are there.
func (r *Release) extract(root string) error {
	dir, err := filepath.Abs(filepath.Join(root, ".keb", "releases", r.Commit))
	if err != nil {
		return err
	}
	if r.Dir = dir; exists(dir) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	partial, err := os.MkdirTemp(filepath.Dir(dir), "partial-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(partial) }() // it is renamed, or useless
	archive := filepath.Join(partial, "files.tar")
	if _, err := git(root, "archive", "--prefix=files/", "-o", archive, r.Commit); err != nil {
		return err
	}
	if out, err := exec.Command("tar", "-xf", archive, "-C", partial).CombinedOutput(); err != nil {
		return fmt.Errorf("extract release %s: %w: %s", r.Version, err, out)
	}
	if err := os.Rename(filepath.Join(partial, "files"), dir); err != nil && !exists(dir) { // another test may be quicker
		return err
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// built are the programs of releases, by path.
var built sync.Map

// Program builds the command of an image of the release, without the race detector, and returns its path. It is kept in the folder of the release,
// so that a later run does not link it again.
func (r *Release) Program(t testing.TB, image string) string {
	t.Helper()
	path := filepath.Join(r.Dir, "bin", image)
	once, _ := built.LoadOrStore(path, sync.OnceValue(func() error {
		return compile(r.Dir, path, "./"+folderOf(t, r.Dir, image), false, "-X", "github.com/kyma-project/keb/libs/service.version=v"+r.Version)
	}))
	require.NoErrorf(t, once.(func() error)(), "release %s", r.Version)
	return path
}

func git(dir string, args ...string) (string, error) {
	var out, problem bytes.Buffer
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &problem
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(problem.String()))
	}
	return strings.TrimSpace(out.String()), nil
}
