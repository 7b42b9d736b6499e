package render_test

import (
	"reflect"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
	"github.com/kyma-project/keb/services/btp-manager/internal/render"
)

func TestRender_SameValues_GiveSameObjects(t *testing.T) {
	for name, v := range sets() {
		t.Run(name, func(t *testing.T) {
			first := renderOperand(t, v)
			c := operandChart(t)
			for range 20 {
				again, err := c.Render(release(), v)
				require.NoError(t, err)
				if diff := cmp.Diff(first, again); diff != "" {
					t.Fatalf("the second time (-first +again):\n%s", diff)
				}
			}
		})
	}
}

// A pass and the controller of the certificates render concurrently.
func TestRender_Concurrent_IsSafe(t *testing.T) {
	c, v := operandChart(t), usual()
	want := renderOperand(t, v)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			got, err := c.Render(release(), v)
			if err != nil {
				t.Error(err)
				return
			}
			// Changes of a caller's objects do not affect those of another one.
			defer func() { got[0].SetName("changed") }()
			if !reflect.DeepEqual(want, got) {
				t.Error("a render gave other objects")
			}
		})
	}
	wg.Wait()
	again, err := c.Render(release(), v)
	require.NoError(t, err)
	if diff := cmp.Diff(want, again); diff != "" {
		t.Errorf("callers changed the chart (-want +got):\n%s", diff)
	}
}

func TestRender_Values_AreNotChanged(t *testing.T) {
	v := values{"a": values{"b": "mine"}, "list": []any{"x"}}
	c, err := render.Load(tiny(map[string]string{
		"values.yaml":      "a: {b: chart, c: chart}\nlist: []\n",
		"templates/c.yaml": `{{- $_ := set .Values.a "b" "changed" }}` + "\n" + configMap(`{{ .Values.a.b }}{{ .Values.a.c }}`),
	}))
	require.NoError(t, err)
	for range 2 {
		objs, err := c.Render(release(), v)
		require.NoError(t, err)
		if got := objs[0].Object["data"]; !reflect.DeepEqual(got, values{"x": "changedchart"}) {
			t.Errorf("data is %v", got)
		}
	}
	if diff := cmp.Diff(values{"a": values{"b": "mine"}, "list": []any{"x"}}, v); diff != "" {
		t.Errorf("Render changed the values of its caller (-before +after):\n%s", diff)
	}
}

func TestVersion_Chart_IsReturned(t *testing.T) {
	c, err := render.Load(tiny(nil))
	require.NoError(t, err)
	if c.Version() != "1.2.3" {
		t.Errorf("the version is %q", c.Version())
	}
	if _, err := render.Load(operand.Chart()); err != nil {
		t.Error(err)
	}
}
