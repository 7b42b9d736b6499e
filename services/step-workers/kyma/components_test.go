package kyma_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/kyma"
)

func TestComponents_OfPlan_AreReadInInstallOrder(t *testing.T) {
	t.Parallel()
	const list = "defaultNamespace: kyma-system\ncomponents:\n- name: ory\n- {name: agent, namespace: kyma-integration}\n" +
		"prerequisites:\n- name: cluster-essentials\n- {name: istio, namespace: istio-system}\n"
	want := []any{
		map[string]any{"name": "cluster-essentials", "namespace": "kyma-system"},
		map[string]any{"name": "istio", "namespace": "istio-system"},
		map[string]any{"name": "ory", "namespace": "kyma-system"},
		map[string]any{"name": "agent", "namespace": "kyma-integration"},
	}
	op := order("ga-3", "sa-3", nil)
	op.Plan.Name = "trial" // its key has no additional components, and does not inherit those of the key default
	r := run(t, &controlPlane{status: 200, mapping: mapping, published: list}, provision, op)
	if diff := gocmp.Diff(any(want), r.Details["components"]); diff != "" || r.Outcome != event.OutcomeSucceeded {
		t.Errorf("%s, %+v (-want +got):\n%s", r.Outcome, r.Error, diff)
	}
}

func TestComponents_OfVersion_AreLookedUp(t *testing.T) {
	t.Parallel()
	const released, development = "/kyma-prow-artifacts/", "/kyma-development-artifacts/"
	const none, file = "", "/kyma-components.yaml"
	for name, test := range map[string]struct {
		version  string
		versions map[string]string
		asked    []string
		// reason is the reason of the failure; empty means success.
		reason, message string
	}{
		"of a release":          {"2.18.0-RC1", nil, []string{released + "2.18.0-RC1" + file, "runtime-version-2.18.0-rc1=true"}, "", ""},
		"of a pull request":     {"PR-17", nil, []string{development + "PR-17" + file, "runtime-version-pr-17=true"}, "", ""},
		"of the main branch":    {"main-1a2b3c4d", nil, []string{development + "main-1a2b3c4d" + file, "runtime-version-main-1a2b3c4d=true"}, "", ""},
		"of another branch":     {"rel-1a2b3c4d", nil, []string{released + "rel-1a2b3c4d" + file, "runtime-version-rel-1a2b3c4d=true"}, "", ""},
		"of Kyma 1":             {"1.24.11", nil, nil, "", ""},
		"without one's own":     {"PR-17", map[string]string{"runtime-version-pr-17=true": none}, []string{development + "PR-17" + file, "runtime-version-pr-17=true", "runtime-version-2.20.0=true"}, "", ""},
		"without any":           {"2.18.0", map[string]string{"runtime-version-2.18.0=true": none}, []string{released + "2.18.0" + file, "runtime-version-2.18.0=true"}, "err_k8s_no_match_error", "no ConfigMap in kcp-system has the labels keb-config=true,runtime-version-2.18.0=true"},
		"with several":          {"PR-17", map[string]string{"runtime-version-pr-17=true": runtimes + "," + runtimes}, []string{development + "PR-17" + file, "runtime-version-pr-17=true"}, "err_k8s_ambiguous_error", "2 ConfigMaps"},
		"without the plan":      {"2.18.0", map[string]string{"runtime-version-2.18.0=true": `{"metadata":{"name":"r"},"data":{"trial":"x"}}`}, []string{released + "2.18.0" + file, "runtime-version-2.18.0=true"}, "err_k8s_unexpected_object_error", "ConfigMap r has neither the key azure nor the key default"},
		"without a list":        {"2.18.0", map[string]string{"runtime-version-2.18.0=true": `{"metadata":{"name":"r"},"data":{"default":"kyma-template: x"}}`}, []string{released + "2.18.0" + file, "runtime-version-2.18.0=true"}, "err_k8s_unexpected_object_error", "ConfigMap r, key default: additional-components is missing"},
		"that is not published": {"9.9.9", nil, []string{released + "9.9.9" + file}, "err_http_status_code", "status 404"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &controlPlane{status: 404, mapping: noMapping, versions: test.versions}
			r := run(t, c, provision, order("ga", "sa", map[string]any{"kymaVersion": test.version}))
			if diff := gocmp.Diff(test.asked, c.asked); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if test.reason == "" {
				if r.Outcome != event.OutcomeSucceeded {
					t.Errorf("%s, %+v", r.Outcome, r.Error)
				}
				return
			}
			if r.Outcome != event.OutcomeFailed || r.Error.Reason != test.reason || !strings.Contains(r.Error.Message, test.message) || r.Details != nil {
				t.Errorf("%s, %+v, saved %v", r.Outcome, r.Error, r.Details)
			}
		})
	}
}

func TestComponents_UnreadableList_IsRetried(t *testing.T) {
	t.Parallel()
	for _, list := range []string{"<html>", "components: []", "components: [{namespace: x}]"} {
		r := run(t, &controlPlane{status: 404, mapping: noMapping, published: list}, provision, order("ga", "sa", nil))
		if r.Outcome != event.OutcomeRetry || r.Error.Component != "artifacts" || r.Details != nil {
			t.Errorf("%s: %s, %+v, saved %v", list, r.Outcome, r.Error, r.Details)
		}
	}
}

func TestComponents_OfRelease_AreFetchedOnce(t *testing.T) {
	t.Parallel()
	c := &controlPlane{status: 404, mapping: noMapping}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	steps, err := kyma.Steps(kyma.Config{
		ControlPlane: kube.ControlPlane{KCPURL: server.URL}, Namespace: "kcp-system", VersionsConfigMap: "kyma-versions",
		DefaultVersion: "2.20.0", ArtifactsURL: server.URL, RetryInterval: time.Second,
	}, extclient.Deps{})
	require.NoError(t, err)
	for _, version := range []string{"2.20.0", "PR-17", "2.20.0", "PR-17"} {
		op := order("ga", "sa", map[string]any{"kymaVersion": version})
		op.Worker = kyma.Name
		if r := workertest.Run(t, steps[0], op); r.Outcome != event.OutcomeSucceeded {
			t.Errorf("%s: %s, %+v", version, r.Outcome, r.Error)
		}
	}
	count := map[string]int{}
	for _, path := range c.asked {
		count[path]++
	}
	if a, b := count["/kyma-prow-artifacts/2.20.0/kyma-components.yaml"], count["/kyma-development-artifacts/PR-17/kyma-components.yaml"]; a != 1 || b != 2 {
		t.Errorf("the release was fetched %d times, the pull request %d times: want 1 and 2", a, b)
	}
}
