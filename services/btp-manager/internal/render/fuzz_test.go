package render_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1 "k8s.io/api/core/v1"

	"github.com/kyma-project/keb/services/btp-manager/internal/render"
)

// Other clients write the Secret with the credentials. Any content must be rendered unchanged and must create no other object.
func FuzzCredentials(f *testing.F) {
	for _, s := range []string{"plain", "", "true", "0x1F", "a: b", "\"", "'", "x\n---\nkind: Pod", "{{ .Values }}", "<no value>", "\x00\x7f\u0085\u2028\ufeff", "𝄞", "\r\n ", "&a *a", "# no", "\xff"} {
		f.Add(s, s)
	}
	c := operandChart(f)
	plain, err := c.Render(release(), nil)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, id, secret string) {
		objs, err := c.Render(release(), values{"cluster": values{"id": id}, "manager": values{"secret": values{"clientsecret": secret}}})
		if !utf8.ValidString(id) || !utf8.ValidString(secret) {
			if err == nil {
				t.Error("text that is no UTF-8 is taken")
			}
			return
		}
		if _, ok := errors.AsType[*render.ValuesError](err); ok && utf8.RuneCountInString(id) > 1024 {
			return
		}
		require.NoError(t, err)
		if len(objs) != len(plain) {
			t.Fatalf("there are %d objects, must be %d", len(objs), len(plain))
		}
		if strings.Contains(id, "<no value>") || strings.Contains(secret, "<no value>") {
			return // Helm removes this from everything it renders
		}
		if got, _, _ := unstructured.NestedString(find(t, objs, "ConfigMap", "sap-btp-operator-config").Object, "data", "CLUSTER_ID"); got != id {
			t.Errorf("the id is %q, must be %q", got, id)
		}
		if got := typed[*corev1.Secret](t, objs)["sap-btp-service-operator"].Data["clientsecret"]; string(got) != secret {
			t.Errorf("the secret is %q, must be %q", got, secret)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"", "---", "a: b", configMap("y"), "apiVersion: v1\nkind: List\nitems: [{}]\nmetadata: {}", "&a [*a]", "{", "- a", "apiVersion: v1\nkind: A\nmetadata: {name: 1}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		objs, err := render.Decode(text)
		for _, o := range objs {
			if err == nil && (o.GetKind() == "" || o.GetAPIVersion() == "" || o.GetName() == "") {
				t.Errorf("%q is taken for an object", text)
			}
		}
	})
}
