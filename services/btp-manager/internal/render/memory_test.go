package render_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/services/btp-manager/internal/render"
)

func TestRender_OtherValues_GiveOtherObjects(t *testing.T) {
	c, err := render.Load(tiny(map[string]string{
		"values.yaml":           "x: chart\n",
		"templates/c.yaml":      configMap("{{ .Values.x }}"),
		"templates/always.yaml": strings.Replace(configMap("same"), "name: c", "name: always", 1),
	}))
	require.NoError(t, err)
	for _, x := range []string{"one", "two", "two", "one", "chart"} {
		objs, err := c.Render(release(), values{"x": x})
		require.NoError(t, err)
		if got := find(t, objs, "ConfigMap", "c").Object["data"]; !reflect.DeepEqual(got, values{"x": x}) {
			t.Errorf("with the value %s the data is %v", x, got)
		}
		if got := find(t, objs, "ConfigMap", "always").Object["data"]; !reflect.DeepEqual(got, values{"x": "same"}) {
			t.Errorf("beside the value %s the other data is %v", x, got)
		}
		// Changes of a caller's objects do not affect the next call.
		for _, o := range objs {
			o.SetName("changed")
		}
	}
}

func TestRender_Memory_KeepsNoSecret(t *testing.T) {
	c := operandChart(t)
	v := usual()
	v["manager"].(values)["secret"].(values)["clientsecret"] = "very-secret"
	if _, err := c.Render(release(), v); err != nil {
		t.Fatal(err)
	}
	kept := c.Kept()
	if len(kept) < 5 {
		t.Errorf("only %d files are kept", len(kept))
	}
	for _, secret := range []string{"very-secret", "dmVyeS1zZWNyZXQ", "kind: Secret"} {
		if slices.ContainsFunc(kept, func(text string) bool { return strings.Contains(text, secret) }) {
			t.Errorf("a text with %q is kept", secret)
		}
	}
}
