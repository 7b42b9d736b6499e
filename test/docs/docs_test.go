// Package docs_test holds what people read against what there is: links, environment variables, and targets of make. The commands of
// keb that pages show are checked beside the command line, in cmd/keb/internal/cli.
package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/test/internal/docpage"
)

const root = "../.."

// files are the paths of files in the repository, from its root, whose name ends in one of these.
func files(t *testing.T, within []string, ends ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, start := range within {
		err := filepath.WalkDir(filepath.Join(root, start), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if name := d.Name(); d.IsDir() {
				if name == "node_modules" || name == ".git" || name == ".keb" || name == "bin" {
					return filepath.SkipDir
				}
				return nil
			}
			if !slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(path, end) }) {
				return nil
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(root, path)
			found[filepath.ToSlash(name)] = string(text)
			return err
		})
		require.NoError(t, err)
	}
	return found
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	span    = regexp.MustCompile("`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	notWord = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	named   = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
)

// anchors are those that GitHub gives to the headings of a page.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		title := linked.ReplaceAllString(m[1], "$1")
		anchor := strings.ReplaceAll(notWord.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-")
		all[anchor] = true
	}
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		all[m[1]] = true
	}
	return all
}

func TestDocs_Links_Exist(t *testing.T) {
	t.Parallel()
	pages := files(t, []string{"."}, ".md")
	headings := map[string]map[string]bool{}
	for name, text := range pages {
		headings[name] = anchors(text)
	}
	links := 0
	for name, text := range pages {
		for _, m := range link.FindAllStringSubmatch(span.ReplaceAllString(fence.ReplaceAllString(text, ""), ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			links++
			path := name
			if target != "" {
				path = filepath.ToSlash(filepath.Join(filepath.Dir(name), target))
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s: %s is not there", name, m[1])
				continue
			}
			if anchor != "" && !headings[path][anchor] {
				t.Errorf("%s: %s has no such heading", name, m[1])
			}
		}
	}
	if links < 150 {
		t.Errorf("found %d links, which cannot be all", links)
	}
}

var (
	variable = regexp.MustCompile(`\bKEB_[A-Z0-9_]*[A-Z0-9]\b(_\*)?`)
	// Streams of the bus look like variables.
	notVariables = map[string]bool{"KEB_REQUESTS": true, "KEB_COMMANDS": true, "KEB_RESULTS": true, "KEB_FACTS": true, "KEB_SIGNALS": true, "KEB_DEAD": true}
	perUser      = regexp.MustCompile(`^KEB_(NATS_)?PASSWORD_[A-Z0-9_]+$`)
	inCode       = regexp.MustCompile(`"(KEB_[A-Z0-9_]*[A-Z0-9])"|\$\{?(KEB_[A-Z0-9_]*[A-Z0-9])|\b(KEB_[A-Z0-9_]*[A-Z0-9])=|os\.Getenv\("(KEB_[A-Z0-9_]+)"\)|\((KEB_[A-Z0-9_]+)\)`)
)

// known lists the variables that services, the command line, Docker Compose, scripts and tests read.
func known(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	names, err := docpage.Names(root)
	require.NoError(t, err)
	for _, name := range names {
		all[name], all[name+"_FILE"] = true, true
	}
	code := files(t, []string{"cmd", "libs", "services", "test", "examples", ".ci"}, ".go", ".sh", "run")
	for _, name := range []string{"docker-compose.yml", "docker-compose.tls.yml"} {
		code[name] = read(t, name)
	}
	code["Makefile"] = read(t, "Makefile")
	for _, text := range code {
		for line := range strings.Lines(text) {
			if !strings.Contains(line, "KEB_") {
				continue
			}
			for _, m := range inCode.FindAllStringSubmatch(line, -1) {
				for _, name := range m[1:] {
					all[name] = true
				}
			}
		}
	}
	return all
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	require.NoError(t, err)
	return string(text)
}

func TestDocs_Variables_AreRead(t *testing.T) {
	t.Parallel()
	known := known(t)
	texts := files(t, []string{"docs", "deploy", "examples", "README.md", "CHANGELOG.md", "docker-compose.yml", "docker-compose.tls.yml"}, ".md", ".yaml", ".yml", ".tpl", ".txt", ".conf", ".sh", "Dockerfile")
	seen := 0
	for name, text := range texts {
		for _, v := range variable.FindAllString(text, -1) {
			if strings.HasSuffix(v, "_*") || notVariables[v] || perUser.MatchString(v) {
				continue
			}
			seen++
			if !known[v] {
				t.Errorf("%s: no program reads %s", name, v)
			}
		}
	}
	if seen < 300 {
		t.Errorf("found %d variables, which cannot be all", seen)
	}
}

// What Docker Compose and the command line take from the environment must be said on a page; what services read is in docs/configuration.md.
func TestDocs_ComposeAndCLIVariables_AreDocumented(t *testing.T) {
	t.Parallel()
	var pages strings.Builder
	for _, text := range files(t, []string{"docs", "README.md"}, ".md") {
		pages.WriteString(text)
	}
	documented := map[string]bool{}
	for _, v := range variable.FindAllString(pages.String(), -1) {
		documented[v] = true
	}
	check := func(where, name string) {
		if !documented[name] && !perUser.MatchString(name) {
			t.Errorf("%s reads %s, and no page says so", where, name)
		}
	}
	fromOutside := regexp.MustCompile(`\$\{(KEB_[A-Z0-9_]+)`)
	found := 0
	for _, m := range fromOutside.FindAllStringSubmatch(read(t, "docker-compose.yml"), -1) {
		check("docker-compose.yml", m[1])
		found++
	}
	text := regexp.MustCompile(`"(KEB_[A-Z0-9_]*[A-Z0-9])"`)
	for name, code := range files(t, []string{"cmd/keb"}, ".go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for line := range strings.Lines(code) {
			if !strings.Contains(line, "KEB_") {
				continue
			}
			for _, m := range text.FindAllStringSubmatch(line, -1) {
				check(name, m[1])
				found++
			}
		}
	}
	if found < 40 {
		t.Errorf("found %d variables, which cannot be all", found)
	}
}

func TestDocs_MakeTargets_Exist(t *testing.T) {
	t.Parallel()
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	mention := regexp.MustCompile("(?m)`make ([a-z][a-z0-9-]*)|^make ([a-z][a-z0-9-]*)")
	mentioned := map[string]bool{}
	for name, text := range files(t, []string{"docs", "deploy", "README.md", "CHANGELOG.md"}, ".md") {
		for _, m := range mention.FindAllStringSubmatch(text, -1) {
			target := m[1] + m[2]
			mentioned[target] = true
			if !targets[target] {
				t.Errorf("%s: there is no make %s", name, target)
			}
		}
	}
	suite := regexp.MustCompile(`make e2e SUITE=([a-z]+)`)
	for name, text := range files(t, []string{"."}, ".md", ".go", "Makefile") {
		for _, m := range suite.FindAllStringSubmatch(text, -1) {
			if info, err := os.Stat(filepath.Join(root, "test", m[1])); err != nil || !info.IsDir() {
				t.Errorf("%s: there is no test/%s, so make e2e has no SUITE=%s", name, m[1], m[1])
			}
		}
	}
	contributor := read(t, "docs/contributor.md")
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):.*## `).FindAllStringSubmatch(read(t, "Makefile"), -1) {
		if !strings.Contains(contributor, "`make "+m[1]) && m[1] != "help" {
			t.Errorf("docs/contributor.md does not have make %s", m[1])
		}
	}
	if len(mentioned) < 10 {
		t.Errorf("pages name %d targets, which cannot be all", len(mentioned))
	}
}

// Pages name tests as the proof of a promise. The pages of contracts name a licence type that begins like a test.
func TestTestsThatPagesName_Exist(t *testing.T) {
	t.Parallel()
	declared := map[string]bool{}
	for _, text := range files(t, []string{"."}, "_test.go") {
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(text, -1) {
			declared[m[1]] = true
		}
	}
	found := 0
	for name, text := range files(t, []string{"docs", "README.md", "CHANGELOG.md"}, ".md") {
		for _, m := range regexp.MustCompile("`(Test\\w+)").FindAllStringSubmatch(text, -1) {
			found++
			if !declared[m[1]] && !strings.HasPrefix(name, "docs/contracts/") {
				t.Errorf("%s: there is no test %s", name, m[1])
			}
		}
	}
	if found < 50 {
		t.Errorf("pages name %d tests, which cannot be all", found)
	}
}

// A command in the background has not begun to serve when the next one asks it, and it stays.
func TestDocs_PortForwards_AreNotInBackground(t *testing.T) {
	t.Parallel()
	background := regexp.MustCompile(`(?m)^.*\bport-forward\b.*[^&]&([^&].*)?$`)
	for name, text := range files(t, []string{"docs", "deploy", "README.md"}, ".md") {
		for _, command := range background.FindAllString(text, -1) {
			t.Errorf("%s: run it in a terminal of its own: %s", name, command)
		}
	}
}
