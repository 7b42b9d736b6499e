package e2e_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/releaseutil"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

const managerChart = "../../../deploy/helm/btp-manager"

// installation is the rendered chart of the manager, in Helm's order of application.
type installation struct {
	objects []*unstructured.Unstructured
}

// renderManager renders the chart like Helm, by default for a cluster without Kyma.
func renderManager(t *testing.T, values string) installation {
	t.Helper()
	given := map[string]any{"prerequisites": map[string]any{"namespace": true, "priorityClass": true}}
	require.NoError(t, yaml.Unmarshal([]byte(values), &given))
	all, err := yaml.Marshal(given)
	require.NoError(t, err)
	files, err := kubetest.RenderChart(t, managerChart, string(all), kubetest.Release{Name: "btp-manager", Namespace: kymaSystem})
	require.NoError(t, err)
	for name := range files {
		if path.Base(name) == "NOTES.txt" {
			delete(files, name)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil || len(hooks) > 0 {
		t.Fatalf("%v, %d hooks", err, len(hooks))
	}
	var in installation
	for _, m := range manifests {
		o := new(unstructured.Unstructured)
		require.NoErrorf(t, yaml.Unmarshal([]byte(m.Content), &o.Object), "%s", m.Name)
		in.objects = append(in.objects, o)
	}
	return in
}

// manifest is the output of `helm template`.
func (in installation) manifest(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, o := range in.objects {
		content, err := yaml.Marshal(o.Object)
		require.NoError(t, err)
		b.WriteString("---\n")
		b.Write(content)
	}
	return b.String()
}

// flags are the args of the manager's container, without the addresses of metrics and probes.
func (in installation) flags(t *testing.T) []string {
	t.Helper()
	for _, o := range in.objects {
		if o.GetKind() != "Deployment" {
			continue
		}
		var d appsv1.Deployment
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d))
		args := d.Spec.Template.Spec.Containers[0].Args
		own := slices.DeleteFunc(slices.Clone(args), func(a string) bool {
			return strings.HasPrefix(a, "--metrics-bind-address=") || strings.HasPrefix(a, "--health-probe-bind-address=")
		})
		if len(own) != len(args)-2 {
			t.Fatalf("args of the manager: %q, want an address for metrics and one for probes", args)
		}
		return own
	}
	t.Fatal("the chart has no Deployment")
	return nil
}
