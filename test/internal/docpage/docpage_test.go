package docpage

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
)

//go:generate go test -count=1 -run ^TestPages_Generated_AreUpToDate$ . -update

const root = "../../.."

func TestPages_Generated_AreUpToDate(t *testing.T) {
	t.Parallel()
	for name, render := range pages {
		page, err := render(root)
		require.NoError(t, err)
		testkit.Golden(t, filepath.Join(root, name), page)
	}
}

var (
	localLink = regexp.MustCompile(`\]\((#[^)]+)\)`)
	heading   = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notWord   = regexp.MustCompile(`[^a-z0-9_ -]`)
)

func TestPages_Links_LeadToHeadings(t *testing.T) {
	t.Parallel()
	for name, render := range pages {
		if filepath.Ext(name) != ".md" {
			continue
		}
		text, err := render(root)
		require.NoError(t, err)
		anchors := map[string]bool{}
		for _, m := range heading.FindAllStringSubmatch(string(text), -1) {
			anchors["#"+strings.ReplaceAll(notWord.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
		}
		links := localLink.FindAllStringSubmatch(string(text), -1)
		if len(links) < 20 {
			t.Errorf("%s has %d links, want at least 20", name, len(links))
		}
		for _, m := range links {
			if !anchors[m[1]] {
				t.Errorf("%s: no heading for %s", name, m[1])
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
		require.NoError(t, os.Mkdir(filepath.Join(dir, "api"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "api", "openapi.yaml"), []byte(text), 0o600))
		if _, err := operatorAPI(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// One variable of each kind: of the main, of an embedded struct of the same package and of another one, and with a prefix.
func TestVariables_NestedStructs_AreFound(t *testing.T) {
	t.Parallel()
	names, err := Names(root)
	require.NoError(t, err)
	for _, want := range []string{
		"KEB_LOG_LEVEL", "KEB_METRICS_ADDR", "KEB_MAINTENANCE_POLICY", "KEB_ACCESS_OIDC_ISSUER", "KEB_PROVISIONER_URL", "KEB_KCP_URL", "KEB_KYMA1_COMPONENTS",
		"KEB_AVS_TRIAL_GROUP_ID", "KEB_WORKER_RATE_LIMIT", "KEB_LANDSCAPE_DATA_DIR", "KEB_CIS_URL",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing", want)
		}
	}
}
