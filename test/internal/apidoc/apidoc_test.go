package apidoc_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/apidoc"
)

//go:generate go test -count=1 -run ^TestPages_Generated_AreUpToDate$ . -update

const (
	contracts = "../../../api"
	docs      = "../../../docs"
)

func TestPages_Generated_AreUpToDate(t *testing.T) {
	t.Parallel()
	for name, render := range apidoc.Pages() {
		page, err := render(contracts)
		require.NoError(t, err)
		testkit.Golden(t, filepath.Join(docs, name), page)
	}
}

var (
	link    = regexp.MustCompile(`\]\((#[^)]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notWord = regexp.MustCompile(`[^a-z0-9_ -]`)
)

func TestPages_Links_LeadToHeadings(t *testing.T) {
	t.Parallel()
	for name, render := range apidoc.Pages() {
		text, err := render(contracts)
		require.NoError(t, err)
		anchors := map[string]bool{}
		for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
			anchors["#"+strings.ReplaceAll(notWord.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
		}
		links := link.FindAllStringSubmatch(string(text), -1)
		if len(links) < 20 {
			t.Errorf("%s has %d links, which cannot be all", name, len(links))
		}
		for _, m := range links {
			if !anchors[m[1]] {
				t.Errorf("%s: nothing at %s", name, m[1])
			}
		}
	}
}

func TestPages_DanglingReference_IsAnError(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"info: {title: x}\npaths: {/a: {$ref: '#/nowhere'}}\ntags: [{name: a}]":                                                            "openapi.yaml: $ref #/nowhere leads nowhere",
		"info: {title: x}\npaths: {/a: {$ref: 'b.json'}}\ntags: [{name: a}]":                                                               "$ref b.json: open",
		"info: {title: x}\npaths: {/a: {get: {tags: [a], responses: {200: {content: {x: {example: {$ref: '#/b'}}}}}}}}\ntags: [{name: a}]": "$ref #/b leads nowhere",
		"tags: [{description: a}]": "a tag has no name",
		"":                         "openapi.yaml: is empty",
		"a: b:":                    "openapi.yaml: yaml:",
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "openapi.yaml"), []byte(text), 0o600))
		if _, err := apidoc.OpenAPI(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}
