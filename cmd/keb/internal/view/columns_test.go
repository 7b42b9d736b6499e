package view_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/cmd/keb/internal/view"
)

var items = []json.RawMessage{
	json.RawMessage(`{"id":"a","eval":12345678901234567,"status":{"state":"failed","ops":[{"type":"x"},{"type":"y"}]},"note":"two\nlines"}`),
	json.RawMessage(`{"id":"bb","status":{"state":"succeeded","expired":true},"note":null}`),
}

func TestPrint_Columns_AreAligned(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"ID:id":                            "ID\na\nbb\n",
		"ID:.id,STATE:{.status.state}":     "ID  STATE\na   failed\nbb  succeeded\n",
		"N:eval":                           "N\n12345678901234567\n-\n",
		"OPS:status.ops[*].type":           "OPS\nx,y\n-\n",
		"TWO:{.status.ops[0,1].type},I:id": "TWO  I\nx,y  a\n-    bb\n",
		"ALL:status.ops":                   `ALL` + "\n" + `[{"type":"x"},{"type":"y"}]` + "\n-\n",
		"NOTE:note , X:status.expired":     "NOTE       X\ntwo lines  -\n-          true\n",
	} {
		c, err := view.ParseColumns(spec)
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		var out strings.Builder
		if err := c.Print(&out, items); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", spec, diff)
		}
	}
}

func TestParse_InvalidColumns_AreRejected(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]string{
		"":             "no column given",
		",":            "no column given",
		"id":           `column "id": must be HEADER:JSONPATH`,
		":id":          `column ":id": must be HEADER:JSONPATH`,
		"ID:":          `column "ID:": must be HEADER:JSONPATH`,
		"ID:{.id":      `column ID: "{.id" is not a valid JSONPath`,
		"A:id,B:[?(@}": `column B: "[?(@}" is not a valid JSONPath`,
	} {
		if _, err := view.ParseColumns(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", spec, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("ID:.id,STATE:{.status.state}")
	f.Add("A:['x,y'][0:2]")
	f.Fuzz(func(t *testing.T, spec string) {
		c, err := view.ParseColumns(spec)
		if err != nil {
			return
		}
		var out strings.Builder
		_ = c.Print(&out, items) // it must not panic
	})
}
