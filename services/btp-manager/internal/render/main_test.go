package render_test

import (
	"flag"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
	"github.com/kyma-project/keb/services/btp-manager/internal/render"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

var shared kubetest.Shared

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(shared.Main(m))
}

type values = map[string]any

func release() render.Release { return render.Release{Name: "btpoperator", Namespace: "kyma-system"} }

// operandChart is the chart in BTP Manager.
func operandChart(t testing.TB) *render.Chart {
	t.Helper()
	c, err := render.Load(operand.Chart())
	require.NoError(t, err)
	return c
}

func renderOperand(t testing.TB, v values) []*unstructured.Unstructured {
	t.Helper()
	objs, err := operandChart(t).Render(release(), v)
	require.NoError(t, err)
	return objs
}

// bundle has the form of a certificate.
const bundle = "-----BEGIN CERTIFICATE-----\nMIIBszCCAVmgAwIBAgIUQ2VydGlmaWNhdGU=\n-----END CERTIFICATE-----\n"

// usual returns the values that BTP Manager sets for a cluster.
func usual() values {
	return values{
		"cluster": values{"id": "9f2e4b1c-cluster"},
		"manager": values{
			"certificates": values{"caBundle": bundle},
			"secret": values{
				"clientid": "sb-client!b1|service-manager!b2", "clientsecret": "s3cr3t: \"quoted\"\n", "sm_url": "https://sm.example.com",
				"tokenurl": "https://token.example.com",
			},
		},
	}
}

// moved has the credentials in another namespace, and no network policies.
func moved() values {
	return values{
		"cluster":         values{"id": "c"},
		"manager":         values{"management_namespace": "credentials", "certificates": values{"caBundle": bundle}},
		"networkPolicies": values{"enabled": false},
	}
}

// tuned sets every possible value.
func tuned() values {
	return values{
		"cluster": values{"id": "true"}, // a string that YAML would interpret as another type
		"manager": values{
			"image":                values{"repository": "registry.local:5000/operand", "tag": "v1.2.3", "sha": strings.Repeat("ab", 32)},
			"imagePullSecrets":     []any{values{"name": "registry"}},
			"enable_limited_cache": false,
			"secret": values{
				"clientid": "client", "clientsecret": "", "sm_url": "https://sm", "tokenurl": "https://t", "tokenurlsuffix": "/token",
				"tls":   values{"crt": "crt", "key": "key"},
				"extra": map[string]string{"region": "ZXUxMA==", "a.b-c": ""},
			},
			"certificates": values{"caBundle": bundle + bundle},
		},
		"networkPolicies": values{"egressPorts": []any{8443}},
	}
}

func sets() map[string]values {
	return map[string]values{"defaults": nil, "usual": usual(), "moved": moved(), "tuned": tuned()}
}

// tiny is a chart with these templates and files only.
func tiny(files map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{"Chart.yaml": {Data: []byte("apiVersion: v2\nname: tiny\nversion: 1.2.3\n")}}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fsys
}

// configMap returns a template of a ConfigMap with these lines of data.
func configMap(data string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  x: " + data + "\n"
}

// find returns the object of that kind and name.
func find(t testing.TB, objs []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range objs {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}
