package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/osb/osbtest"
)

func TestCitedPages_Exist(t *testing.T) {
	t.Parallel()
	var (
		page    = regexp.MustCompile(`\bdocs/[\w./-]+\.md(#[\w-]+)?`)
		outside = regexp.MustCompile(`\bfacts/[a-z-]+\.md`)
	)
	pages := files(t, []string{"docs"}, ".md")
	cited := 0
	for name, text := range files(t, []string{"."}, ".go", ".md", ".yaml", ".yml", ".json", ".sql", ".js", ".tpl", ".sh", "Makefile", "Dockerfile") {
		if m := outside.FindString(text); m != "" {
			t.Errorf("%s cites %s, which is not in this repository", name, m)
		}
		for _, m := range page.FindAllString(text, -1) {
			path, anchor, _ := strings.Cut(m, "#")
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s cites %s, which does not exist", name, m)
				continue
			}
			if anchor != "" && !anchors(pages[path])[anchor] {
				t.Errorf("%s cites %s, which has no such heading", name, m)
			}
			cited++
		}
	}
	if cited < 250 {
		t.Errorf("found %d citations, which cannot be all", cited)
	}
}

func TestRulesOfTheServiceBroker_MatchTheSuite(t *testing.T) {
	t.Parallel()
	var listed, checked []string
	for _, m := range regexp.MustCompile(`(?m)^\| ([A-Z]\d\d) \|`).FindAllStringSubmatch(read(t, "docs/contracts/osb.md"), -1) {
		listed = append(listed, m[1])
	}
	for _, c := range osbtest.Cases() {
		checked = append(checked, c.ID)
	}
	slices.Sort(listed)
	slices.Sort(checked)
	if !slices.Equal(listed, checked) {
		t.Errorf("docs/contracts/osb.md and osbtest differ:\n%v\n%v", listed, checked)
	}
}
