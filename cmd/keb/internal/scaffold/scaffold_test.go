package scaffold_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/kyma-project/keb/cmd/keb/internal/scaffold"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/contract"
	"github.com/kyma-project/keb/services/orchestrator/processes"
)

const repository = "../../../.."

// create creates a project, and returns its files by their paths.
func create(t *testing.T, p scaffold.Project) map[string]string {
	t.Helper()
	if p.Parent == "" {
		p.Parent = t.TempDir()
	}
	require.NoError(t, scaffold.Create(p))
	folder := filepath.Join(p.Parent, p.Name)
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		found[filepath.ToSlash(strings.TrimPrefix(path, folder+string(filepath.Separator)))] = string(text)
		return err
	}))
	return found
}

func TestCreate_EachLanguage_HasAllFiles(t *testing.T) {
	t.Parallel()
	common := []string{
		".dockerignore", ".github/workflows/ci.yaml", ".gitignore", "Dockerfile", "README.md", "cases.yaml", "order.json", "overlay/audit-log.yaml", "values.yaml",
	}
	for language, own := range map[string][]string{
		"go":     {"go.mod", "main.go", "steps.go", "steps_test.go"},
		"python": {"requirements.txt", "test_worker.py", "worker.py"},
		"node":   {".npmrc", "package.json", "worker.mjs", "worker.test.mjs"},
	} {
		var got []string
		for name, text := range create(t, scaffold.Project{Name: "audit-log", Language: language, Clone: repository}) {
			if strings.HasPrefix(name, "vendor/keb-worker/") {
				continue
			}
			got = append(got, name)
			var parsed any
			if strings.HasSuffix(name, "yaml") && name != "overlay/audit-log.yaml" && yaml.Unmarshal([]byte(text), &parsed) != nil {
				t.Errorf("%s: %s is not YAML", language, name)
			}
			if strings.HasSuffix(name, ".json") && json.Unmarshal([]byte(text), &parsed) != nil {
				t.Errorf("%s: %s is not JSON", language, name)
			}
			if left := regexp.MustCompile(`(?i)my.worker`).FindString(text + name); left != "" {
				t.Errorf("%s: %s has %q", language, name, left)
			}
		}
		slices.Sort(got)
		want := append(slices.Clone(common), own...)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: files differ (-want +got):\n%s", language, diff)
		}
	}
}

func TestCreate_Overlay_FitsProcesses(t *testing.T) {
	t.Parallel()
	got := create(t, scaffold.Project{Name: "audit-log", Language: "go"})
	parent := t.TempDir()
	create(t, scaffold.Project{Name: "audit-log", Language: "go", Parent: parent})
	set, err := process.Load(processes.FS, os.DirFS(filepath.Join(parent, "audit-log", "overlay")))
	require.NoError(t, err)
	builtIn, err := process.Load(processes.FS)
	require.NoError(t, err)
	if warnings := process.Warnings(builtIn, set); len(warnings) > 0 {
		t.Errorf("the overlay has warnings: %v", warnings)
	}
	for operation, step := range map[string]string{"provision": "Audit_Log_Create", "deprovision": "Audit_Log_Delete"} {
		found := false
		for _, p := range set {
			if _, _, known := p.Find(step); known {
				found = string(p.Operation) == operation
			}
		}
		if !found || !strings.Contains(got["steps.go"], `"`+step+`"`) {
			t.Errorf("the step %s is not in %s, or not in steps.go", step, operation)
		}
	}
	cases, err := contract.ReadCases(strings.NewReader(got["cases.yaml"]))
	require.NoError(t, err)
	if len(cases) < 2 {
		t.Errorf("%d cases", len(cases))
	}
}

func TestCreate_GoModule_HasTheLibrary(t *testing.T) {
	t.Parallel()
	libs, err := os.ReadFile(repository + "/libs/go.mod")
	require.NoError(t, err)
	version := regexp.MustCompile(`(?m)^go \S+$`).FindString(string(libs))
	path, err := filepath.Abs(repository + "/libs")
	require.NoError(t, err)
	for name, test := range map[string]struct {
		project scaffold.Project
		want    string
	}{
		"published": {scaffold.Project{LibraryVersion: "v0.0.0-20261124010203-0123456789ab"}, "\nrequire github.com/kyma-project/keb/libs v0.0.0-20261124010203-0123456789ab\n"},
		"clone":     {scaffold.Project{Clone: repository}, "\nrequire github.com/kyma-project/keb/libs v0.0.0\n\nreplace github.com/kyma-project/keb/libs => \"" + path + "\"\n"},
		"unknown":   {scaffold.Project{}, ""},
	} {
		test.project.Name, test.project.Language = "audit-log", "go"
		if diff := cmp.Diff("module audit-log\n\n"+version+"\n"+test.want, create(t, test.project)["go.mod"]); diff != "" {
			t.Errorf("%s: go.mod differs (-want +got):\n%s", name, diff)
		}
	}
	if next := (scaffold.Project{Name: "audit-log", Language: "go"}).Next(); !strings.Contains(next[0], "go get github.com/kyma-project/keb/libs@main") {
		t.Errorf("without a version, the first command is %s", next[0])
	}
}

func TestCreate_Library_IsCopiedWithoutTests(t *testing.T) {
	t.Parallel()
	for language, want := range map[string]string{"python": "keb_worker/__init__.py", "node": "src/index.js"} {
		got := create(t, scaffold.Project{Name: "audit-log", Language: language, Clone: repository})
		if got["vendor/keb-worker/"+want] == "" {
			t.Errorf("%s: the library has no %s", language, want)
		}
		for name := range got {
			if strings.Contains(name, "node_modules") || strings.Contains(name, "__pycache__") || strings.HasPrefix(name, "vendor/keb-worker/test") {
				t.Errorf("%s: %s is copied", language, name)
			}
		}
	}
}

func TestCheck_InvalidProject_ErrorNamesField(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		project scaffold.Project
		want    string
	}{
		{scaffold.Project{Name: "a", Language: "rust"}, `--lang "rust": must be one of go, node, python`},
		{scaffold.Project{Name: "a", Language: "node"}, "--keb is missing"},
		{scaffold.Project{Name: "a", Language: "python", Clone: "/nowhere"}, `--keb "/nowhere": must be the folder of a clone of KEB; it has no folder clients/python`},
		{scaffold.Project{Name: "", Language: "go"}, `name "": use lower-case letters`},
		{scaffold.Project{Name: "Audit", Language: "go"}, `name "Audit"`},
		{scaffold.Project{Name: "../audit", Language: "go"}, `name "../audit"`},
		{scaffold.Project{Name: "7audit", Language: "go"}, "begin with a letter"},
		{scaffold.Project{Name: "audit-", Language: "go"}, "end with a letter or a digit"},
		{scaffold.Project{Name: strings.Repeat("a", 33), Language: "go"}, "at most 32"},
	} {
		if err := test.project.Check(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: error %v, want %q", test.project, err, test.want)
		}
	}
	for _, name := range []string{"a", "a1", "audit-log", "a--b", strings.Repeat("a", 32)} {
		if err := (scaffold.Project{Name: name, Language: "go"}).Check(); err != nil || worker.CheckName(name) != nil {
			t.Errorf("%s: %v, %v", name, err, worker.CheckName(name))
		}
		for _, step := range scaffold.Steps(name) {
			if !regexp.MustCompile(`^[A-Z][A-Za-z0-9_]*_(Create|Delete)$`).MatchString(step) {
				t.Errorf("%s: step %s", name, step)
			}
		}
	}
}

func TestCreate_Failure_LeavesNothing(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	mine := filepath.Join(parent, "audit-log")
	require.NoError(t, os.Mkdir(mine, 0o750))
	if err := scaffold.Create(scaffold.Project{Name: "audit-log", Language: "go", Parent: parent}); err == nil || !strings.Contains(err.Error(), "audit-log exists already") {
		t.Errorf("an existing folder: %v", err)
	}
	// A clone without a part of the library fails when most files are written.
	clone := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(clone, "clients/python/keb_worker"), 0o750))
	if err := scaffold.Create(scaffold.Project{Name: "other", Language: "python", Parent: parent, Clone: clone}); err == nil || !strings.Contains(err.Error(), "copy the library") {
		t.Errorf("an incomplete clone: %v", err)
	}
	left, err := os.ReadDir(parent)
	require.NoError(t, err)
	inside, err := os.ReadDir(mine)
	require.NoError(t, err)
	if len(left) != 1 || len(inside) != 0 {
		t.Errorf("these are left: %v, and in the existing folder: %v", left, inside)
	}
}
