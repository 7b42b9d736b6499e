// Package fuzz_test finds and runs the fuzz tests of all modules: make soak SUITE=fuzz.
package fuzz_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// target is a fuzz test.
type target struct {
	// folder is that of its package, from the root of the repository.
	folder, name string
	// seeds is how many inputs it begins with that once found something; they are in the repository.
	seeds int
}

func (t target) String() string { return t.folder + " " + t.name }

// targets finds the fuzz tests by reading the files of all modules, sorted.
func targets(t *testing.T) (found []target) {
	t.Helper()
	walk(t, func(path string) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Fuzz") || f.Type.Params.NumFields() != 1 {
				continue
			}
			folder := filepath.Dir(path)
			seeds, err := os.ReadDir(filepath.Join(root, folder, "testdata", "fuzz", f.Name.Name))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			found = append(found, target{folder: filepath.ToSlash(folder), name: f.Name.Name, seeds: len(seeds)})
		}
	})
	slices.SortFunc(found, func(a, b target) int { return strings.Compare(a.String(), b.String()) })
	return found
}

// walk visits the test files of the repository, by their path from its root.
func walk(t *testing.T, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "node_modules" || name == "testdata" || len(name) > 2 && strings.HasPrefix(name, ".") || name == "bin"):
			return filepath.SkipDir
		case !d.IsDir() && strings.HasSuffix(name, "_test.go"):
			path, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			visit(path)
		}
		return nil
	})
	require.NoError(t, err)
}

// What the compiler knows as a fuzz test is found by reading the files, and the other way round: none is left out by make soak SUITE=fuzz
// because it stands in a module of its own, or behind a build constraint.
func TestEveryFuzzTestIsRun(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for _, target := range targets(t) {
		found[target.String()] = false
	}
	if len(found) < 50 {
		t.Fatalf("only %d fuzz tests are found", len(found))
	}
	listed := goCommand(t, root, "list", "-m", "-f", "{{.Dir}}")
	for module := range strings.FieldsSeq(listed) {
		format := `{{$dir := .Dir}}{{range .TestGoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}`
		for path := range strings.FieldsSeq(goCommand(t, module, "list", "-f", format, "./...")) {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			for line := range strings.SplitSeq(string(text), "\n") {
				name, ok := strings.CutPrefix(line, "func Fuzz")
				if !ok {
					continue
				}
				name, _, _ = strings.Cut(name, "(")
				absolute, err := filepath.Abs(root)
				require.NoError(t, err)
				folder, err := filepath.Rel(absolute, filepath.Dir(path))
				require.NoError(t, err)
				id := filepath.ToSlash(folder) + " Fuzz" + name
				if _, ok := found[id]; !ok {
					t.Errorf("%s is not run", id)
				}
				found[id] = true
			}
		}
	}
	for id, built := range found {
		if !built {
			t.Errorf("%s is in no package that the workspace builds", id)
		}
	}
}

func goCommand(t *testing.T, folder string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = folder
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoErrorf(t, err, "go %s", strings.Join(args, " "))
	return string(out)
}
