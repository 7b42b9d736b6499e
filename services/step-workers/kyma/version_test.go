package kyma_test

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/kyma"
)

const (
	provision = "Provision_Initialization"
	update    = "Update_Init_Kyma_Version"
	upgrade   = "Upgrade_Init_Kyma_Version"
	collect   = "Overrides_From_Secrets_And_Config_Step"

	mapping = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"kyma-versions"},"data":{
		"SA_sa-1":"PR-17","GA_ga-1":"main-1a2b3c4d","GA_ga-2":"2.19.3","GA_ga-bad":"latest"}}`
	noMapping = `{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound"}`
)

// controlPlane serves the ConfigMap of versions and lists of overrides, and records the selectors of the lists. It also serves the artifacts
// of every version but 9.9.9, and the ConfigMaps of versions.
type controlPlane struct {
	status    int
	mapping   string
	selectors []string
	items     string
	// asked are the paths of the artifacts and the selectors of versions.
	asked []string
	// versions are the ConfigMaps of a version by the selector's label; a missing one has the key default.
	versions map[string]string
	// published is the answer of the artifacts' store; "" means the usual list.
	published string
}

const (
	published = "defaultNamespace: kyma-system\nprerequisites:\n- {name: istio, namespace: istio-system}\ncomponents:\n- name: serverless\n"
	runtimes  = `{"metadata":{"name":"runtimes"},"data":{
		"default":"additional-components:\n- {name: btp-operator, namespace: kyma-system, source: {url: 'https://charts.example/btp.tgz'}}",
		"trial":"additional-components: []"}}`
)

// installed is the list of components of a plan other than trial.
var installed = []any{
	map[string]any{"name": "istio", "namespace": "istio-system"},
	map[string]any{"name": "serverless", "namespace": "kyma-system"},
	map[string]any{"name": "btp-operator", "namespace": "kyma-system", "url": "https://charts.example/btp.tgz"},
}

func (c *controlPlane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/configmaps/kyma-versions") {
		w.WriteHeader(c.status)
		_, _ = w.Write([]byte(c.mapping))
		return
	}
	selector := r.URL.Query().Get("labelSelector")
	if strings.HasSuffix(r.URL.Path, "/kyma-components.yaml") {
		c.asked = append(c.asked, r.URL.Path)
		if strings.Contains(r.URL.Path, "9.9.9") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write([]byte(cmp.Or(c.published, published)))
		return
	}
	if label, ok := strings.CutPrefix(selector, "keb-config=true,"); ok {
		c.asked = append(c.asked, label)
		items, ok := c.versions[label]
		if !ok {
			items = runtimes
		}
		_, _ = w.Write([]byte(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[` + items + `]}`))
		return
	}
	c.selectors = append(c.selectors, selector)
	kind, items := "SecretList", `{"metadata":{"name":"s","labels":{"component":"c"}},"data":{"k":"`+base64.StdEncoding.EncodeToString([]byte("v"))+`"}}`
	if strings.HasSuffix(r.URL.Path, "/configmaps") {
		kind, items = "ConfigMapList", c.items
	}
	_, _ = w.Write([]byte(`{"kind":"` + kind + `","apiVersion":"v1","metadata":{},"items":[` + items + `]}`))
}

// saved returns the details of a selected version.
func saved(version, origin string) map[string]any {
	return map[string]any{"version": version, "origin": origin, "components": installed}
}

func run(t *testing.T, c *controlPlane, step string, op workertest.Operation) workertest.Result {
	t.Helper()
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	steps, err := kyma.Steps(kyma.Config{
		ControlPlane: kube.ControlPlane{KCPURL: server.URL}, Namespace: "kcp-system", VersionsConfigMap: "kyma-versions",
		DefaultVersion: "2.20.0", ArtifactsURL: server.URL, RetryInterval: time.Second,
	}, extclient.Deps{})
	require.NoError(t, err)
	op.Worker = kyma.Name
	for _, s := range steps {
		if s.Name() == step {
			return workertest.Run(t, s, op)
		}
	}
	t.Fatalf("no step %s", step)
	return workertest.Result{}
}

func order(account, subaccount string, parameters map[string]any) workertest.Operation {
	if parameters == nil {
		parameters = map[string]any{}
	}
	return workertest.Operation{
		Plan: event.Plan{Name: "azure"}, Parameters: parameters,
		Context: event.Context{GlobalAccountID: account, SubaccountID: subaccount},
	}
}

func TestVersion_Order_Precedence(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		op   workertest.Operation
		want kyma.Details
	}{
		"first the version of the order": {order("ga-1", "sa-1", map[string]any{"kymaVersion": "2.18.0-rc1"}), kyma.Details{Version: "2.18.0-rc1", Origin: "parameters"}},
		"then that of the subaccount":    {order("ga-1", "sa-1", nil), kyma.Details{Version: "PR-17", Origin: "account-mapping"}},
		"then that of the account":       {order("ga-1", "sa-2", nil), kyma.Details{Version: "main-1a2b3c4d", Origin: "account-mapping"}},
		"then the configured one":        {order("ga-3", "sa-3", nil), kyma.Details{Version: "2.20.0", Origin: "defaults"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := run(t, &controlPlane{status: 200, mapping: mapping}, provision, test.op)
			want := saved(test.want.Version, test.want.Origin)
			if diff := gocmp.Diff(want, r.Details); diff != "" || r.Outcome != event.OutcomeSucceeded {
				t.Errorf("%s, %+v (-want +got):\n%s", r.Outcome, r.Error, diff)
			}
		})
	}
}

func TestVersion_Invalid_IsRejected(t *testing.T) {
	t.Parallel()
	bad := order("ga-1", "sa-1", nil)
	bad.Type, bad.Upgrade = event.UpgradeKyma, &event.Upgrade{KymaVersion: "2.21"}
	for field, test := range map[string]struct {
		step string
		op   workertest.Operation
	}{
		"parameters.kymaVersion":               {provision, order("ga-1", "sa-1", map[string]any{"kymaVersion": "1=true,x"})},
		"ConfigMap kyma-versions, GA_ga-bad: ": {provision, order("ga-bad", "sa-3", nil)},
		"upgrade.kymaVersion":                  {upgrade, bad},
	} {
		r := run(t, &controlPlane{status: 200, mapping: mapping}, test.step, test.op)
		if r.Outcome != event.OutcomeFailed || !strings.Contains(r.Error.Message, field) || !strings.Contains(r.Error.Message, "PR-<number>") || r.Details != nil {
			t.Errorf("%s: %s, %+v, saved %v", field, r.Outcome, r.Error, r.Details)
		}
	}
}

func TestVersion_NoMapping_UsesDefault(t *testing.T) {
	t.Parallel()
	r := run(t, &controlPlane{status: 404, mapping: noMapping}, provision, order("ga-1", "sa-1", nil))
	if r.Outcome != event.OutcomeSucceeded || r.Details["version"] != "2.20.0" {
		t.Errorf("%s, %+v, saved %v", r.Outcome, r.Error, r.Details)
	}
	r = run(t, &controlPlane{status: 500, mapping: "{}"}, provision, order("ga-1", "sa-1", nil))
	if r.Outcome != event.OutcomeRetry || r.RetryAfter != time.Second || r.Details != nil {
		t.Errorf("a failing control plane: %s, %+v, saved %v", r.Outcome, r.Error, r.Details)
	}
}

func TestVersion_Update_KeepsVersion(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		details map[string]any
		want    map[string]any // what is saved
	}{
		"the selected version":         {map[string]any{"kyma": kyma.Details{Version: "2.19.0", Origin: "parameters"}}, saved("2.19.0", "parameters")},
		"the version after an upgrade": {map[string]any{"kyma": kyma.Details{Version: "2.21.0", Origin: "parameters"}, "reconciler": map[string]any{"kymaVersion": "2.21.0"}}, saved("2.21.0", "parameters")},
		"the version after a failed upgrade": {
			map[string]any{"kyma": kyma.Details{Version: "2.21.0", Origin: "parameters"}, "reconciler": map[string]any{"kymaVersion": "2.20.0"}},
			saved("2.20.0", "parameters"),
		},
		"a runtime without saved version": {nil, saved("PR-17", "account-mapping")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			op := order("ga-1", "sa-1", nil)
			op.Type, op.Details = event.Update, test.details
			r := run(t, &controlPlane{status: 200, mapping: mapping}, update, op)
			if diff := gocmp.Diff(test.want, r.Details); diff != "" || r.Outcome != event.OutcomeSucceeded {
				t.Errorf("%s, %+v, saved (-want +got):\n%s", r.Outcome, r.Error, diff)
			}
		})
	}
}

func TestVersion_Upgrade_UsesOrchestration(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]map[string]any{
		"2.21.0": saved("2.21.0", "parameters"),
		"":       saved("PR-17", "account-mapping"),
	} {
		op := order("ga-1", "sa-1", map[string]any{"kymaVersion": "2.18.0"}) // the version of the order does not count
		op.Type, op.Upgrade = event.UpgradeKyma, &event.Upgrade{KymaVersion: version}
		op.Details = map[string]any{"kyma": kyma.Details{Version: "2.18.0", Origin: "parameters"}}
		r := run(t, &controlPlane{status: 200, mapping: mapping}, upgrade, op)
		if diff := gocmp.Diff(want, r.Details); diff != "" || r.Outcome != event.OutcomeSucceeded {
			t.Errorf("%q: %s, %+v, saved (-want +got):\n%s", version, r.Outcome, r.Error, diff)
		}
	}
}

func TestOverrides_SelectedVersion_IsUsed(t *testing.T) {
	t.Parallel()
	global := `{"metadata":{"name":"g"},"data":{"a":"b"}},{"metadata":{"name":"i","labels":{"component":"istio"}},"data":{"x":"y"}}`
	for name, test := range map[string]struct {
		kind       event.OperationType
		parameters map[string]any
		details    kyma.Details
		items      string
		version    string
		want       event.Outcome
	}{
		"of the order":                            {event.Provision, nil, kyma.Details{Version: "PR-17"}, global, "PR-17", event.OutcomeSucceeded},
		"of another version":                      {event.Provision, map[string]any{"overridesVersion": "o-1"}, kyma.Details{Version: "PR-17"}, global, "o-1", event.OutcomeSucceeded},
		"an upgrade uses its own":                 {event.UpgradeKyma, map[string]any{"overridesVersion": "o-1"}, kyma.Details{Version: "2.21.0"}, global, "2.21.0", event.OutcomeSucceeded},
		"an operation without a selected version": {event.Provision, nil, kyma.Details{}, global, "2.20.0", event.OutcomeSucceeded},
		"only overrides of a component":           {event.Provision, nil, kyma.Details{Version: "2.20.0"}, `{"metadata":{"name":"i","labels":{"component":"istio"}}}`, "2.20.0", event.OutcomeFailed},
		"an empty global ConfigMap":               {event.Provision, nil, kyma.Details{Version: "2.20.0"}, `{"metadata":{"name":"g"},"data":{}}`, "2.20.0", event.OutcomeFailed},
		"none":                                    {event.Provision, nil, kyma.Details{Version: "2.20.0"}, "", "2.20.0", event.OutcomeFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &controlPlane{status: 404, mapping: noMapping, items: test.items}
			op := order("ga", "sa", test.parameters)
			op.Type, op.Details = test.kind, map[string]any{"kyma": test.details}
			r := run(t, c, collect, op)
			if r.Outcome != test.want {
				t.Fatalf("%s, %+v", r.Outcome, r.Error)
			}
			want := []string{"runtime-override=true", "overrides-plan-azure=true,overrides-version-" + strings.ToLower(test.version) + "=true"}
			if diff := gocmp.Diff(want, c.selectors); diff != "" {
				t.Errorf("selectors (-want +got):\n%s", diff)
			}
			if test.want == event.OutcomeFailed {
				if r.Error.Component != "k8s client - keb" || r.Error.Reason != "err_k8s_no_match_error" ||
					!strings.Contains(r.Error.Message, "no global overrides for plan azure and version 2.20.0") || len(r.Overrides) > 0 {
					t.Errorf("%+v, overrides %v", r.Error, r.Overrides)
				}
				return
			}
			wantOverrides := []worker.ComponentOverrides{
				{Component: "", Entries: []worker.Override{{Key: "a", Value: "b"}}},
				{Component: "c", Entries: []worker.Override{{Key: "k", Value: "v", Secret: true}}},
				{Component: "istio", Entries: []worker.Override{{Key: "x", Value: "y"}}},
			}
			if diff := gocmp.Diff(wantOverrides, r.Overrides); diff != "" {
				t.Errorf("overrides (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOverrides_Kyma1_HasItsOwnLabels(t *testing.T) {
	t.Parallel()
	items := `{"metadata":{"name":"i","labels":{"component":"istio"}},"data":{"x":"y"}},
		{"metadata":{"name":"lite","labels":{"component":"istio","default-for-lite":"true"}},"data":{"memory":"1Gi"}}`
	for plan, want := range map[string][]worker.Override{
		"azure":      {{Key: "memory", Value: "1Gi"}, {Key: "x", Value: "y"}},
		"azure_lite": {{Key: "x", Value: "y"}},
		"trial":      {{Key: "x", Value: "y"}},
	} {
		c := &controlPlane{status: 404, mapping: noMapping, items: items}
		op := order("ga", "sa", nil)
		op.Plan.Name, op.Details = plan, map[string]any{"kyma": kyma.Details{Version: "1.24.11"}}
		r := run(t, c, collect, op)
		if diff := gocmp.Diff([]string{"provisioning-runtime-override=true", "provisioning-runtime-override=true"}, c.selectors); diff != "" {
			t.Errorf("selectors (-want +got):\n%s", diff)
		}
		istio := slices.IndexFunc(r.Overrides, func(o worker.ComponentOverrides) bool { return o.Component == "istio" })
		if r.Outcome != event.OutcomeSucceeded || istio < 0 {
			t.Fatalf("%s, %+v, overrides %v", r.Outcome, r.Error, r.Overrides)
		}
		if diff := gocmp.Diff(want, r.Overrides[istio].Entries); diff != "" {
			t.Errorf("overrides of plan %s (-want +got):\n%s", plan, diff)
		}
	}
}

func TestOverrides_LaterObject_ReplacesValueAndSecrecy(t *testing.T) {
	t.Parallel()
	items := `{"metadata":{"name":"g"},"data":{"a":"b"}},{"metadata":{"name":"c","labels":{"component":"c"}},"data":{"k":"old"}},
		{"metadata":{"name":"d","labels":{"component":"c"}},"data":{"k":"new"}}`
	r := run(t, &controlPlane{status: 404, mapping: noMapping, items: items}, collect, order("ga", "sa", nil))
	want := []worker.ComponentOverrides{
		{Component: "", Entries: []worker.Override{{Key: "a", Value: "b"}}}, {Component: "c", Entries: []worker.Override{{Key: "k", Value: "new"}}},
	}
	if diff := gocmp.Diff(want, r.Overrides); diff != "" || r.Outcome != event.OutcomeSucceeded {
		t.Errorf("%s, %+v, overrides (-want +got):\n%s", r.Outcome, r.Error, diff)
	}
}

func TestConfig_InvalidDefaultVersion_IsRejected(t *testing.T) {
	t.Parallel()
	err := kyma.Config{
		ControlPlane: kube.ControlPlane{KCPURL: "http://127.0.0.1:1"}, Namespace: "n", VersionsConfigMap: "v", ArtifactsURL: "http://127.0.0.1:1", DefaultVersion: "latest", RetryInterval: 1,
	}.Validate()
	if err == nil || !strings.Contains(err.Error(), "KEB_KYMA_VERSION") {
		t.Errorf("got %v", err)
	}
}
