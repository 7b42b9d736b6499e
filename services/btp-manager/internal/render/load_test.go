package render_test

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/services/btp-manager/chart"
	"github.com/kyma-project/keb/services/btp-manager/internal/render"
)

// variable matches the functions of templates that are random, read a clock or access external data.
var variable = regexp.MustCompile(`\b(lookup|getHostByName|env|expandenv|rand[A-Z]\w*|shuffle|uuidv4|bcrypt|htpasswd|encryptAES|gen[A-Z]\w*|now|ago|` +
	`date\w*|htmlDate\w*|durationRound|toDate|mustToDate|must_toDate|keys|values|tpl)\b`)

// calls returns the matching functions that a template calls. It ignores text, comments, fields and variables.
func calls(template string) (found []string) {
	for _, action := range regexp.MustCompile(`(?s)\{\{.*?\}\}`).FindAllString(template, -1) {
		action = regexp.MustCompile("(?s)/\\*.*?\\*/|\"[^\"]*\"|`[^`]*`|[.$]\\w+").ReplaceAllString(action, " ")
		found = append(found, variable.FindAllString(action, -1)...)
	}
	return found
}

func TestOperand_Templates_CallNoVariableFunction(t *testing.T) {
	planted := calls(`now {{ .Values.now }} {{/* env */}} {{ "tpl" }} {{ if eq (uuidv4) "" }}{{ $x := 5 | randAlpha }}{{ end }}`)
	if want := []string{"uuidv4", "randAlpha"}; !slices.Equal(planted, want) {
		t.Fatalf("the planted template calls %q, want %q", planted, want)
	}
	templates, err := fs.Glob(chart.FS(), "templates/*")
	require.NoError(t, err)
	for _, name := range templates {
		text, err := fs.ReadFile(chart.FS(), name)
		require.NoError(t, err)
		if found := calls(string(text)); len(found) > 0 {
			t.Errorf("%s calls %q, whose result varies", name, found)
		}
	}
}

func TestLoad_UnsupportedChart_IsRejected(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no chart":        {map[string]string{"Chart.yaml": ""}, "validation"},
		"version":         {map[string]string{"Chart.yaml": "apiVersion: v2\nname: t\nversion: 1.0.0+build\n"}, `"1.0.0+build" cannot be the value of a label`},
		"subchart":        {map[string]string{"charts/sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 1.0.0\n"}, "subcharts"},
		"dependency":      {map[string]string{"Chart.yaml": "apiVersion: v2\nname: t\nversion: 1.0.0\ndependencies: [{name: d, version: 1.0.0}]\n"}, "subcharts"},
		"template":        {map[string]string{"templates/broken.yaml": "{{ if }}"}, "templates/broken.yaml"},
		"schema":          {map[string]string{"values.schema.json": "{"}, "values.schema.json"},
		"kind of schema":  {map[string]string{"values.schema.json": `{"type": "strange"}`}, "values.schema.json"},
		"fetched schema":  {map[string]string{"values.schema.json": `{"$ref": "https://example.com/schema.json"}`}, "values.schema.json"},
		"schema in file":  {map[string]string{"values.schema.json": `{"$ref": "file:///etc/schema.json"}`}, "values.schema.json"},
		"values":          {map[string]string{"values.yaml": "a: [b"}, "values.yaml"},
		"broken CRD":      {map[string]string{"crds/a.yaml": "a: [b"}, "crds/a.yaml: document 1"},
		"CRD of no kind":  {map[string]string{"crds/a.yaml": "a: b"}, "crds/a.yaml: document 1: an object needs"},
		"other than CRDs": {map[string]string{"crds/a.yaml": configMap("y")}, "ConfigMap c is not a CustomResourceDefinition"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render.Load(tiny(c.files))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, must have %q", err, c.want)
			}
		})
	}
}
