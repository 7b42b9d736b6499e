package charts_test

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart/loader"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

// newestRelease returns the version of the newest release in CHANGELOG.md.
func newestRelease(t *testing.T) string {
	t.Helper()
	release := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+) - `).FindStringSubmatch(readFile(t, repository+"CHANGELOG.md"))
	require.NotNil(t, release, "CHANGELOG.md has no release")
	return release[1]
}

// Helm lists both versions, and the images have the appVersion as tag unless the values have another one.
func TestCharts_Versions_AreTheNewestRelease(t *testing.T) {
	t.Parallel()
	want := newestRelease(t)
	files, err := filepath.Glob(repository + "deploy/helm/*/Chart.yaml")
	require.NoError(t, err)
	if len(files) != 3 {
		t.Errorf("%d charts, want 3: %v", len(files), files)
	}
	for _, file := range files {
		c, err := loader.LoadDir(filepath.Dir(file))
		require.NoErrorf(t, err, "load %s", file)
		if c.Metadata.Version != want || c.Metadata.AppVersion != want {
			t.Errorf("%s: version is %q and appVersion %q, want %q, the newest release of CHANGELOG.md",
				c.Name(), c.Metadata.Version, c.Metadata.AppVersion, want)
		}
	}
}

func TestImages_WithoutTag_AreOfTheNewestRelease(t *testing.T) {
	t.Parallel()
	want := map[string]string{"keb-broker": "broker", "keb-orchestrator": "orchestrator", "keb-worker-avs": "step-worker"}
	for _, d := range kubetest.All[*appsv1.Deployment](rendered(t, production)) {
		if service, ok := want[d.Name]; ok {
			delete(want, d.Name)
			image := "ghcr.io/kyma-project/keb/" + service + ":" + newestRelease(t)
			if got := d.Spec.Template.Spec.Containers[0].Image; got != image {
				t.Errorf("image of %s is %s, want %s", d.Name, got, image)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("no Deployments %v", want)
	}
}
