package render_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kyma-project/keb/services/btp-manager/internal/render"
)

func TestLoad_VariableFunction_IsRejected(t *testing.T) {
	for function, call := range map[string]string{
		"lookup": `{{ lookup "v1" "Secret" "ns" "name" }}`, "getHostByName": `{{ getHostByName "example.com" }}`,
		"randAlphaNum": `{{ randAlphaNum 5 | b64enc }}`, "randAlpha": `{{ randAlpha 5 }}`, "randAscii": `{{ randAscii 5 }}`,
		"randBytes": `{{ randBytes 5 }}`, "randNumeric": `{{ 5 | randNumeric }}`, "randInt": `{{ add 1 (randInt 1 9) }}`,
		"shuffle": `{{ "ab" | shuffle }}`, "uuidv4": `{{ uuidv4 }}`, "bcrypt": `{{ bcrypt "x" }}`, "htpasswd": `{{ htpasswd "a" "b" }}`,
		"encryptAES": `{{ encryptAES "key" "text" }}`, "genCA": `{{ $ca := genCA "x" 1 }}`, "genCAWithKey": `{{ genCAWithKey "x" 1 "k" }}`,
		"genPrivateKey": `{{ genPrivateKey "rsa" }}`, "genSelfSignedCert": `{{ (genSelfSignedCert "x" nil nil 1).Cert }}`,
		"genSelfSignedCertWithKey": `{{ genSelfSignedCertWithKey "x" nil nil 1 "k" }}`,
		"genSignedCert":            `{{ genSignedCert "x" nil nil 1 .ca }}`, "genSignedCertWithKey": `{{ genSignedCertWithKey "x" nil nil 1 .ca "k" }}`,
		"now": `{{ now }}`, "ago": `{{ ago .x }}`, "date": `{{ date "2006" .x }}`, "dateInZone": `{{ dateInZone "2006" .x "UTC" }}`,
		"date_in_zone": `{{ date_in_zone "2006" .x "UTC" }}`, "htmlDate": `{{ htmlDate .x }}`, "htmlDateInZone": `{{ htmlDateInZone .x "UTC" }}`,
		"durationRound": `{{ durationRound .x }}`, "toDate": `{{ toDate "2006" "1999" }}`, "mustToDate": `{{ mustToDate "2006" "1999" }}`,
		"keys": `{{ keys .Values | first }}`, "values": `{{ values .Values | first }}`, "tpl": `{{ tpl .Values.text . }}`,
		"env": `{{ env "HOME" }}`, "expandenv": `{{ expandenv "$HOME" }}`,
	} {
		t.Run(function, func(t *testing.T) {
			_, err := render.Load(tiny(map[string]string{"templates/sub/c.yaml": "a: b\n\n" + call + "\n"}))
			refused, ok := errors.AsType[*render.FunctionError](err)
			if !ok {
				t.Fatalf("the chart is taken: %v", err)
			}
			if refused.Function != function || refused.Template != "templates/sub/c.yaml" || refused.Line != 3 || refused.Reason == "" {
				t.Errorf("the error is about %+v", *refused)
			}
		})
	}
}

func TestLoad_VariableFunction_IsFoundAnywhere(t *testing.T) {
	for name, text := range map[string]string{
		"argument": `{{ printf "%s" (trunc 3 uuidv4) }}`, "variable": `{{ $x := uuidv4 }}`, "condition": `{{ if eq uuidv4 "" }}{{ end }}`,
		"branch": `{{ if true }}{{ uuidv4 }}{{ end }}`, "else": `{{ if true }}{{ else }}{{ uuidv4 }}{{ end }}`,
		"else if": `{{ if true }}{{ else if uuidv4 }}{{ end }}`, "with": `{{ with uuidv4 }}{{ end }}`, "range": `{{ range (list uuidv4) }}{{ end }}`,
		"else of range": `{{ range list }}{{ else }}{{ uuidv4 }}{{ end }}`, "definition": `{{ define "x" }}{{ uuidv4 }}{{ end }}`,
		"template": `{{ template "x" uuidv4 }}`, "block": `{{ block "x" . }}{{ uuidv4 }}{{ end }}`, "include": `{{ include "x" (dict "a" uuidv4) }}`,
		"field": `{{ (dict "a" uuidv4).a }}`, "default": `{{ .Values.x | default uuidv4 }}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render.Load(tiny(map[string]string{"templates/_c.tpl": text}))
			if _, ok := errors.AsType[*render.FunctionError](err); !ok {
				t.Errorf("%s is taken: %v", text, err)
			}
		})
	}
	_, err := render.Load(tiny(map[string]string{"templates/c.yaml": `{{/* uuidv4 */}}now: {{ "uuidv4" }} {{ .Values.now }}`}))
	if err != nil {
		t.Errorf("a chart that only speaks of such functions is refused: %v", err)
	}
}

func TestLoad_UnsupportedChart_IsRejected(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no chart":        {map[string]string{"Chart.yaml": ""}, "validation"},
		"version":         {map[string]string{"Chart.yaml": "apiVersion: v2\nname: t\nversion: 1.0.0+build\n"}, `"1.0.0+build" cannot be the value of a label`},
		"library":         {map[string]string{"Chart.yaml": "apiVersion: v2\nname: t\nversion: 1.0.0\ntype: library\n"}, "library"},
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
