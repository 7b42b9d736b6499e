package process_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/process"
)

// wanted returns the lines of a file that start with "#! ", which are the expected messages.
func wanted(content []byte) []string {
	var lines []string
	for line := range strings.Lines(string(content)) {
		if want, ok := strings.CutPrefix(line, "#! "); ok {
			lines = append(lines, strings.TrimSpace(want))
		}
	}
	return lines
}

// cases reads the files of a folder in testdata.
func cases(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in %s: %v", folder, err)
	}
	found := map[string][]byte{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		found[strings.TrimSuffix(filepath.Base(file), ".yaml")] = content
	}
	return found
}

// expectProblems compares the messages of an error with the expected ones, in any order.
func expectProblems(t *testing.T, want []string, err error) {
	t.Helper()
	var got []string
	if err != nil {
		got = strings.Split(err.Error(), "\n")
	}
	if diff := cmp.Diff(want, got, cmpopts.SortSlices(strings.Compare)); diff != "" {
		t.Errorf("problems differ (-want +got):\n%s", diff)
	}
	if _, ok := errors.AsType[*process.Problem](err); !ok {
		t.Errorf("%v holds no *Problem", err)
	}
}

func TestLoad_Problems_HaveFileAndLine(t *testing.T) {
	t.Parallel()
	for name, content := range cases(t, "problems") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := process.Load(fstest.MapFS{"provision.yaml": {Data: content}})
			expectProblems(t, wanted(content), err)
		})
	}
}

func TestLoad_OverlayProblems_HaveFileAndLine(t *testing.T) {
	t.Parallel()
	for name, content := range cases(t, "overlay-problems") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overlay := process.Named("overlays", fstest.MapFS{"x.yaml": {Data: content}})
			_, err := process.Load(os.DirFS("testdata/base"), overlay)
			expectProblems(t, wanted(content), err)
		})
	}
}

func TestLoad_BrokenProcess_SkipsOverlayProblems(t *testing.T) {
	t.Parallel()
	base := fstest.MapFS{"provision.yaml": {Data: []byte("operation: [")}}
	overlay := fstest.MapFS{"x.yaml": {Data: []byte("operation: provision\nchanges:\n  - disable: One\n")}}
	_, err := process.Load(base, overlay)
	expectProblems(t, []string{"provision.yaml:2: not YAML: did not find expected node content"}, err)
}

func TestLoad_EmptyFolder_IsRejected(t *testing.T) {
	t.Parallel()
	_, err := process.Load(process.Named("my/processes", fstest.MapFS{"README.md": {Data: []byte("x")}}))
	if want := "load processes: no *.yaml file in my/processes"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
}

func TestLoad_MissingOverlayFolder_IsRejected(t *testing.T) {
	t.Parallel()
	_, err := process.Load(os.DirFS("testdata/base"), process.Named("no-such-folder", os.DirFS("testdata/no-such-folder")))
	if !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "load overlay: no-such-folder: ") {
		t.Errorf("error %v, want one that names the folder", err)
	}
}

func TestLoad_LargeFile_IsRejected(t *testing.T) {
	t.Parallel()
	_, err := process.Load(fstest.MapFS{"provision.yaml": {Data: []byte(strings.Repeat("#", 1<<20+1))}})
	expectProblems(t, []string{"provision.yaml: larger than 1048576 bytes"}, err)
}
