// Package gosec checks all that is shipped for what gosec knows to be insecure, with the rules that .golangci.yml leaves on.
//
// It is a test, so that planted flaws show at every run that it finds some. Packages are read one by one against what the compiler
// already knows of those they import: nothing is type-checked twice, and `make test` uses again what is compiled for it.
package gosec

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/securego/gosec/v2"
	"github.com/securego/gosec/v2/analyzers"
	"github.com/securego/gosec/v2/issue"
	"github.com/securego/gosec/v2/rules"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/errgroup"
	"golang.org/x/tools/go/packages"
)

const linter = "gosec"

// What is checked is built in the workspace and with cgo, this test itself with neither.
const workspace, cgo = "GOWORK=", "CGO_ENABLED="

// settings are the parts of .golangci.yml that are about gosec: it is the one place where a rule is turned off, with its reason.
type settings struct {
	Linters struct {
		Settings struct {
			Gosec struct {
				Excludes []string `yaml:"excludes"`
			} `yaml:"gosec"`
		} `yaml:"settings"`
		Exclusions struct {
			Rules []struct {
				Path    string   `yaml:"path"`
				Text    string   `yaml:"text"`
				Linters []string `yaml:"linters"`
			} `yaml:"rules"`
		} `yaml:"exclusions"`
	} `yaml:"linters"`
}

type check struct {
	root  string
	off   []string
	paths []*regexp.Regexp
	found []finding
	files int
	mu    sync.Mutex
}

// finding is what gosec says of a line.
type finding struct {
	file string // from the root
	line int
	rule string
	text string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s: %s", f.file, f.line, f.rule, f.text) }

// newCheck reads the configuration of the linters.
func newCheck(root string) (*check, error) {
	path := filepath.Join(root, ".golangci.yml")
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var s settings
	if err := yaml.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	c := &check{root: root, off: s.Linters.Settings.Gosec.Excludes}
	for _, rule := range s.Linters.Exclusions.Rules {
		if !slices.Contains(rule.Linters, linter) {
			continue
		}
		if rule.Path == "" || rule.Text != "" {
			return nil, fmt.Errorf("%s: an exclusion of gosec names a path and nothing else here, this one is %+v", path, rule)
		}
		p, err := regexp.Compile(rule.Path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		c.paths = append(c.paths, p)
	}
	return c, nil
}

// run checks the packages of the patterns, and sorts what it finds.
func (c *check) run(dir string, env []string, patterns ...string) error {
	loaded, err := packages.Load(&packages.Config{
		// Without NeedDeps, imports come from export data.
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedExportFile |
			packages.NeedTypes | packages.NeedTypesSizes | packages.NeedTypesInfo | packages.NeedSyntax,
		Dir: dir,
		Env: append(os.Environ(), env...),
		// As the tests compile, so that they find it done.
		BuildFlags: append([]string{"-pgo=off"}, strings.Fields(os.Getenv("KEB_GOSEC_BUILD"))...),
	}, patterns...)
	if err != nil {
		return err
	}
	if len(loaded) == 0 {
		return fmt.Errorf("no packages in %s", strings.Join(patterns, " "))
	}
	var group errgroup.Group
	group.SetLimit(2)
	for _, pkg := range loaded {
		group.Go(func() error { return c.check(pkg) })
	}
	err = group.Wait()
	slices.SortFunc(c.found, func(a, b finding) int {
		return cmp.Or(strings.Compare(a.file, b.file), cmp.Compare(a.line, b.line), strings.Compare(a.rule, b.rule))
	})
	return err
}

func (c *check) check(pkg *packages.Package) error {
	for _, problem := range pkg.Errors {
		return fmt.Errorf("%s: %w", pkg.ID, problem)
	}
	// What goes wrong with a rule gosec only writes into its log, and finds nothing.
	var said bytes.Buffer
	analyzer := gosec.NewAnalyzer(gosec.NewConfig(), false, true, false, 1, log.New(&said, "", 0))
	analyzer.LoadRules(rules.Generate(false, rules.NewRuleFilter(true, c.off...)).RulesInfo())
	analyzer.LoadAnalyzers(analyzers.Generate(false, analyzers.NewAnalyzerFilter(true, c.off...)).AnalyzersInfo())
	analyzer.CheckRules(pkg)
	analyzer.CheckAnalyzers(pkg)
	for line := range strings.Lines(said.String()) {
		if strings.HasPrefix(line, "Error") || strings.HasPrefix(line, "Panic") {
			return fmt.Errorf("%s: %s", pkg.ID, said.String())
		}
	}
	issues, stats, problems := analyzer.Report()
	if len(problems) > 0 {
		return fmt.Errorf("%s: %v", pkg.ID, problems)
	}
	accepted := c.accepted(pkg)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.files += stats.NumFiles
	for _, i := range issues {
		f, err := c.finding(i)
		if err != nil {
			return fmt.Errorf("%s: %w", pkg.ID, err)
		}
		excluded := slices.ContainsFunc(c.paths, func(p *regexp.Regexp) bool { return p.MatchString(f.file) })
		if !excluded && !accepted[place{i.File, f.line}] && !slices.Contains(c.found, f) {
			c.found = append(c.found, f)
		}
	}
	return nil
}

// finding takes the first line of those an issue is about, as golangci-lint does.
func (c *check) finding(i *issue.Issue) (finding, error) {
	first, _, _ := strings.Cut(i.Line, "-")
	line, err := strconv.Atoi(first)
	if err != nil {
		return finding{}, fmt.Errorf("%s: a finding in line %q: %w", i.File, i.Line, err)
	}
	file, err := filepath.Rel(c.root, i.File)
	if err != nil {
		return finding{}, err
	}
	return finding{file: filepath.ToSlash(file), line: line, rule: i.RuleID, text: i.What}, nil
}

type place struct {
	file string
	line int
}

// directive is a comment that names the linters a line is not for.
var directive = regexp.MustCompile(`^//nolint:([a-z,]+)( |$)`)

// accepted are the lines that end in //nolint:gosec. That it has a reason, and is needed, is for nolintlint to see.
func (c *check) accepted(pkg *packages.Package) map[place]bool {
	lines := map[place]bool{}
	for _, file := range pkg.Syntax {
		for _, group := range file.Comments {
			for _, comment := range group.List {
				if m := directive.FindStringSubmatch(comment.Text); m != nil && slices.Contains(strings.Split(m[1], ","), linter) {
					at := pkg.Fset.Position(comment.Pos())
					lines[place{at.Filename, at.Line}] = true
				}
			}
		}
	}
	return lines
}

func root(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	return root
}

// The flaws of testdata are found, each in the line that says so, and nothing else is.
func TestFlawsAreFound(t *testing.T) {
	t.Parallel()
	c, err := newCheck(root(t))
	require.NoError(t, err)
	dir, err := filepath.Abs("testdata")
	require.NoError(t, err)
	require.NoError(t, c.run(dir, []string{"GOWORK=off", cgo}, "./..."))
	var want []string
	err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := filepath.Rel(c.root, path)
		number := 0
		for line := range strings.Lines(string(raw)) {
			number++
			if _, rule, ok := strings.Cut(strings.TrimSpace(line), "// want "); ok {
				want = append(want, fmt.Sprintf("%s:%d: %s", filepath.ToSlash(file), number, rule))
			}
		}
		return err
	})
	require.NoError(t, err)
	var got []string
	for _, f := range c.found {
		got = append(got, fmt.Sprintf("%s:%d: %s", f.file, f.line, f.rule))
	}
	if len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("found in testdata:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestNothingIsFoundInTheModules(t *testing.T) {
	t.Parallel()
	c, err := newCheck(root(t))
	require.NoError(t, err)
	modules, err := modules(c.root)
	require.NoError(t, err)
	patterns := make([]string, len(modules))
	for i, m := range modules {
		patterns[i] = m + "/..."
	}
	require.NoError(t, c.run(c.root, []string{workspace, cgo}, patterns...))
	for _, f := range c.found {
		t.Error(f)
	}
	t.Logf("%d files of %d modules, %d findings; rules that are off: %s", c.files, len(modules), len(c.found), strings.Join(c.off, " "))
}

// modules are the folders of the workspace's modules.
func modules(root string) ([]string, error) {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}")
	cmd.Dir, cmd.Env = root, append(os.Environ(), workspace, cgo)
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return nil, fmt.Errorf("go list -m: %w: %s", err, exit.Stderr)
		}
		return nil, fmt.Errorf("go list -m: %w", err)
	}
	return strings.Fields(string(out)), nil
}
