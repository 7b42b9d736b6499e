package app_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/render"
)

// release returns a version of the chart with changed templates.
func (s *system) release(version string, change func(path, content string) string) {
	s.t.Helper()
	next := copyFS(s.t, s.chart, func(path, content string) string {
		if path == "Chart.yaml" {
			return regexp.MustCompile(`(?m)^version: .*$`).ReplaceAllString(content, "version: "+version)
		}
		if change != nil && strings.HasPrefix(path, "templates/") {
			return change(path, content)
		}
		return content
	})
	s.chart = next
}

// wanted returns the names of the chart's current objects.
func (s *system) wanted() []string {
	s.t.Helper()
	c, err := render.Load(s.chart)
	if err != nil {
		s.t.Fatal(err)
	}
	objects, err := c.Render(render.Release{Name: "x", Namespace: kymaSystem}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for _, o := range objects {
		names = append(names, title(o))
	}
	slices.Sort(names)
	return names
}

// upgraded waits until the cluster contains exactly the objects of the chart, in its version.
func (s *system) upgraded(o *v1alpha1.BtpOperator, version string) map[string]*unstructured.Unstructured {
	s.t.Helper()
	s.until(o, "the status names version "+version, func() bool {
		return o.Status.ChartVersion == version && o.Status.State == v1alpha1.StateReady
	})
	want := s.wanted()
	var got map[string]*unstructured.Unstructured
	var diff string
	defer func() {
		if s.t.Failed() {
			s.t.Logf("objects (-want +got):\n%s", diff)
		}
	}()
	testkit.Eventually(s.t, waitTimeout, "the cluster holds version "+version+" of the chart", func() bool {
		got = ofTheChart(s.made())
		names := slices.Sorted(maps.Keys(got))
		if diff = cmp.Diff(want, names); diff != "" {
			return false
		}
		for name, o := range got {
			if v := o.GetLabels()["chart-version"]; v != version {
				diff = name + " is of version " + v
				return false
			}
		}
		return true
	})
	return got
}

func uids(of map[string]*unstructured.Unstructured) map[string]types.UID {
	out := map[string]types.UID{}
	for name, o := range of {
		out[name] = o.GetUID()
	}
	return out
}

func TestUpgrade_NewChart_RemovesObsoleteObjects(t *testing.T) {
	s := newSystem(t)
	s.release("1.0.0", nil)
	s.start()
	o := s.provisioned()
	before := s.upgraded(o, "1.0.0")
	s.namespace("users")
	instance, binding := s.serviceInstance("users", "an-instance"), s.serviceBinding("users", "a-binding")

	rename := func(pairs ...string) func(string, string) string {
		r := strings.NewReplacer(pairs...)
		return func(_, content string) string { return r.Replace(content) }
	}
	for _, tt := range []struct {
		name, version string
		change        func(path, content string) string
		// gone is the number of previous objects that are missing afterwards, removed the number of those without a successor of the same name, and
		// fresh the number of new ones.
		gone, removed, fresh int
	}{
		{"only the version", "2.0.0", nil, 0, 0, 0},
		{"some names", "3.0.0", rename(
			"sap-btp-operator-allow-to-dns", "renamed-allow-to-dns",
			"sap-btp-operator-manager-role", "renamed-manager-role", // its binding is named after it
			"sap-btp-operator-controller-manager-metrics-service", "renamed-metrics-service",
		), 4, 4, 4},
		{"objects left out", "4.0.0", func(path, content string) string {
			if path == "templates/userroles.yaml" || path == "templates/networkpolicies.yaml" {
				return ""
			}
			return content
		}, 6, 6, 0},
		{"names without another version", "4.0.0", rename("renamed-metrics-service", "again-metrics-service"), 1, 1, 1},
		{"all names but those of the definitions", "5.0.0", rename(
			"name: sap-btp-", "name: all-btp-", "name: renamed-", "name: all-renamed-", "name: again-", "name: all-again-",
		), len(before) - 2 - 6, len(before) - 2 - 6, len(before) - 2 - 6},
		{"a selector and a role of a binding, which cannot change in place", "6.0.0", rename(
			"control-plane: controller-manager", "control-plane: another", "name: all-renamed-manager-role\n", "name: new-manager-role\n",
		), 3, 1, 3},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.stop()
			s.release(tt.version, tt.change)
			s.start()
			s := s.in(t)
			after := s.upgraded(o, tt.version)
			stayed := 0
			old := uids(before)
			for name, uid := range uids(after) {
				if old[name] == uid {
					stayed++
				}
			}
			if gone, fresh := len(before)-stayed, len(after)-stayed; gone != tt.gone || fresh != tt.fresh {
				t.Errorf("%d objects gone and %d new, want %d and %d", gone, fresh, tt.gone, tt.fresh)
			}
			s.awaitMetric(float64(tt.removed), "objects_removed_total")
			for _, live := range []*unstructured.Unstructured{instance, binding} {
				uid := live.GetUID()
				if !s.exists(live) || live.GetUID() != uid || live.GetDeletionTimestamp() != nil {
					t.Errorf("%s of a user is gone", title(live))
				}
			}
			if n := s.metric("drift_corrections_total", "kind", "ConfigMap"); n != 0 {
				t.Errorf("%v corrections of drift without a change", n)
			}
			before = after
		})
	}
}

func TestUpgrade_DeletionBlocked_IsApplied(t *testing.T) {
	s := newSystem(t)
	s.settings.BlockDeletion = true
	s.release("1.0.0", nil)
	s.start()
	o := s.provisioned()
	s.namespace("users")
	s.serviceInstance("users", "an-instance")
	s.delete(o)
	s.await(o, v1alpha1.StateWarning, v1alpha1.ReasonNotCleaned)

	s.stop()
	s.release("2.0.0", nil)
	s.image = "registry.example.com/operand:2"
	s.start()
	testkit.Eventually(t, waitTimeout, "the Deployment is that of the new chart", func() bool {
		d := deployment()
		return s.exists(d) && d.Labels["chart-version"] == "2.0.0" && d.Spec.Template.Spec.Containers[0].Image == s.image
	})
	t.Run("and a deleted object is restored", func(t *testing.T) {
		s := s.in(t)
		old := deployment()
		s.exists(old)
		s.delete(deployment())
		testkit.Eventually(t, waitTimeout, "the Deployment comes back", func() bool {
			d := deployment()
			return s.exists(d) && d.UID != old.UID
		})
	})
	s.await(o, v1alpha1.StateWarning, v1alpha1.ReasonNotCleaned)
}
