package test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// repository is the root of the repository.
const repository = ".."

// TestFuzz runs every fuzz test for KEB_FUZZ_TIME, one after the other, and prints what came of each. KEB_FUZZ_ONLY is a part of
// the names of those that run.
func TestFuzz(t *testing.T) {
	text := os.Getenv("KEB_FUZZ_TIME")
	if text == "" {
		t.Skip("make soak SUITE=fuzz runs this test")
	}
	long, err := time.ParseDuration(text)
	require.NoError(t, err, "KEB_FUZZ_TIME")
	only := os.Getenv("KEB_FUZZ_ONLY")
	fmt.Printf("%-78s %12s %12s %6s  %s\n", "fuzz test", "executions", "interesting", "seeds", "failure")
	executions, failures, run := 0, 0, 0
	for _, target := range fuzzTests(t) {
		if !strings.Contains(target.String(), only) {
			continue
		}
		run++
		o := fuzz(t, target, long)
		executions += o.executions
		failure := "-"
		if o.failure != "" {
			failures++
			failure, _, _ = strings.Cut(o.failure, "\n")
			t.Errorf("%s: %s", target, o.failure)
		}
		fmt.Printf("%-78s %12d %12d %6d  %s\n", target, o.executions, o.interesting, target.seeds, failure)
	}
	fmt.Printf("%d fuzz tests of %s: %d executions, %d failures\n", run, long, executions, failures)
}

type fuzzed struct {
	executions, interesting int
	failure                 string
}

// fuzzProgress is a line of go test about how far a fuzz test is.
var fuzzProgress = regexp.MustCompile(`execs: (\d+) .*new interesting: (\d+)`)

func fuzz(t *testing.T, target fuzzTest, long time.Duration) (o fuzzed) {
	t.Helper()
	// Building a package, and running what was found before, takes its time too.
	ctx, cancel := context.WithTimeout(t.Context(), long+15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+target.name+"$", "-fuzztime", long.String(), ".")
	cmd.Dir = filepath.Join(repository, target.folder)
	out, err := cmd.CombinedOutput()
	for _, match := range fuzzProgress.FindAllStringSubmatch(string(out), -1) {
		if _, err := fmt.Sscan(match[1], &o.executions); err != nil {
			t.Error(err)
		}
		if _, err := fmt.Sscan(match[2], &o.interesting); err != nil {
			t.Error(err)
		}
	}
	switch {
	case err != nil:
		o.failure = fmt.Sprintf("%v\n%s", err, out)
		// The line that says why comes first.
		for line := range strings.SplitSeq(string(out), "\n") {
			if strings.Contains(line, "_test.go:") || strings.Contains(line, "panic:") {
				o.failure = strings.TrimSpace(line) + "\n" + o.failure
				break
			}
		}
	case o.executions == 0:
		o.failure = "it has not run\n" + string(out)
	}
	return o
}

// fuzzTest is a fuzz test.
type fuzzTest struct {
	// folder is that of its package, from the root of the repository.
	folder, name string
	// seeds is how many inputs it begins with that once found something; they are in the repository.
	seeds int
}

func (t fuzzTest) String() string { return t.folder + " " + t.name }

// fuzzTests finds the fuzz tests by reading the files of all modules, sorted.
func fuzzTests(t *testing.T) (found []fuzzTest) {
	t.Helper()
	testFiles(t, func(path string) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, path), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Fuzz") || f.Type.Params.NumFields() != 1 {
				continue
			}
			folder := filepath.Dir(path)
			seeds, err := os.ReadDir(filepath.Join(repository, folder, "testdata", "fuzz", f.Name.Name))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			found = append(found, fuzzTest{folder: filepath.ToSlash(folder), name: f.Name.Name, seeds: len(seeds)})
		}
	})
	slices.SortFunc(found, func(a, b fuzzTest) int { return strings.Compare(a.String(), b.String()) })
	return found
}

// testFiles visits the test files of the repository, by their path from its root.
func testFiles(t *testing.T, visit func(path string)) {
	t.Helper()
	err := filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && (name == "node_modules" || name == "testdata" || len(name) > 2 && strings.HasPrefix(name, ".") || name == "bin"):
			return filepath.SkipDir
		case !d.IsDir() && strings.HasSuffix(name, "_test.go"):
			path, err := filepath.Rel(repository, path)
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
	for _, target := range fuzzTests(t) {
		found[target.String()] = false
	}
	if len(found) < 50 {
		t.Fatalf("only %d fuzz tests are found", len(found))
	}
	listed := goCommand(t, repository, "list", "-m", "-f", "{{.Dir}}")
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
				absolute, err := filepath.Abs(repository)
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
