package stepworkers_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
	"github.com/kyma-project/keb/services/step-workers/avs"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

type objects struct {
	Data []map[string]any `json:"data"`
}

// statuses returns the statuses of the evaluations in the order of their ids.
func (w *world) statuses() string {
	w.t.Helper()
	var list objects
	w.admin(http.MethodGet, "/avs/objects", nil, &list)
	slices.SortFunc(list.Data, func(a, b map[string]any) int { return strings.Compare(fmt.Sprint(a["id"]), fmt.Sprint(b["id"])) })
	var got []string
	for _, e := range list.Data {
		got = append(got, fmt.Sprint(e["status"]))
	}
	return strings.Join(got, " ")
}

// inRuntime adds a ConfigMap to the runtime.
func (w *world) inRuntime(op workertest.Operation, name string, data map[string]any) {
	w.t.Helper()
	require.NoError(w.t, w.runtime(op).Create(w.t.Context(), kube.ConfigMaps, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": data, "metadata": map[string]any{"name": name, "namespace": "kyma-system"},
	}}))
}

// lifecycle sets the status of an evaluation as an operator would.
func (w *world) lifecycle(id int64, status string) {
	w.t.Helper()
	form := strings.NewReader("grant_type=password&username=keb&password=keb")
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+"/avs/oauth2/token", form)
	require.NoError(w.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.SetBasicAuth("keb", "")
	var token struct {
		Value string `json:"access_token"`
	}
	w.send(req, &token)
	path := fmt.Sprintf("%s/avs/api/v2/evaluationmetadata/%d/lifecycle", w.url, id)
	req, err = http.NewRequestWithContext(w.t.Context(), http.MethodPut, path, strings.NewReader(`"`+status+`"`))
	require.NoError(w.t, err)
	req.Header.Set("Authorization", "Bearer "+token.Value)
	req.Header.Set("Content-Type", "application/json")
	w.send(req, nil)
}

func TestMaintenance_End_RestoresStatus(t *testing.T) {
	for _, status := range []string{"ACTIVE", "INACTIVE", "RETIRED"} {
		t.Run(status, func(t *testing.T) {
			w := newWorld(t)
			op := w.all(provisioning, w.order())
			d := saved[avs.Details](t, op, avs.Name)
			w.lifecycle(d.InternalID, status)
			op = w.killed("AVS_Set_Maintenance", w.upgrade(op, event.UpgradeKyma, "k-1"))
			if got := w.statuses(); got != "MAINTENANCE MAINTENANCE" {
				t.Errorf("during maintenance: %s", got)
			}
			// The repeated stage keeps the saved status.
			op = w.all([]string{"AVS_Set_Maintenance"}, op)
			op = w.killed("AVS_Restore_Status", op)
			if got := w.statuses(); got != status+" ACTIVE" {
				t.Errorf("afterwards: %s", got)
			}
			if now := saved[avs.Details](t, op, avs.Name); now != d {
				t.Errorf("saved %+v, before %+v", now, d)
			}
		})
	}
}

// A status that an earlier upgrade saved and never restored is ignored.
func TestMaintenance_Begin_SavesCurrentStatus(t *testing.T) {
	w := newWorld(t)
	op := w.upgrade(w.all(provisioning, w.order()), event.UpgradeCluster, "c-1")
	d := saved[avs.Details](t, op, avs.Name)
	d.InternalStatus, d.ExternalStatus = "RETIRED", "nonsense"
	op.Details[avs.Name] = d
	op = w.killed("AVS_Set_Maintenance", op)
	w.all([]string{"AVS_Restore_Status"}, op)
	if got := w.statuses(); got != "ACTIVE ACTIVE" {
		t.Errorf("afterwards: %s", got)
	}
}

func TestMaintenance_NoSavedStatus_BecomesActive(t *testing.T) {
	w := newWorld(t)
	op := w.upgrade(w.all(provisioning, w.order()), event.UpgradeCluster, "c-1")
	d := saved[avs.Details](t, op, avs.Name)
	w.lifecycle(d.InternalID, "MAINTENANCE")
	d.InternalStatus = "MAINTENANCE" // the worker never saves this status
	op.Details[avs.Name] = d
	w.lifecycle(d.ExternalID, "INACTIVE")
	w.all([]string{"AVS_Restore_Status"}, op)
	if got := w.statuses(); got != "ACTIVE INACTIVE" {
		t.Errorf("afterwards: %s, want only the maintenance to end", got)
	}
}

func TestMaintenance_MissingEvaluation_IsIgnored(t *testing.T) {
	w := newWorld(t)
	op := w.upgrade(w.all(provisioning, w.order()), event.UpgradeCluster, "c-1")
	d := saved[avs.Details](t, op, avs.Name)
	op.Details[avs.Name] = avs.Details{InternalID: d.InternalID + 1000, ExternalID: d.ExternalID}
	op = w.all([]string{"AVS_Set_Maintenance"}, op)
	if got := w.statuses(); got != "ACTIVE MAINTENANCE" {
		t.Errorf("during maintenance: %s", got)
	}
	w.all([]string{"AVS_Restore_Status"}, op)
	if got := w.statuses(); got != "ACTIVE ACTIVE" {
		t.Errorf("afterwards: %s", got)
	}
}

func TestMaintenance_OneFails_EndsTheOther(t *testing.T) {
	w := newWorld(t)
	op := w.all([]string{"AVS_Set_Maintenance"}, w.upgrade(w.all(provisioning, w.order()), event.UpgradeCluster, "c-1"))
	d := saved[avs.Details](t, op, avs.Name)
	r := w.during(fault{prefix: fmt.Sprintf("/avs/api/v2/evaluationmetadata/%d/lifecycle", d.InternalID), status: http.StatusServiceUnavailable}, "AVS_Restore_Status", op)
	if r.Outcome != retry || r.Error == nil || w.statuses() != "MAINTENANCE ACTIVE" {
		t.Errorf("%s, %+v: %s", r.Outcome, r.Error, w.statuses())
	}
}

// killed runs a step to its end; the result of each execution is lost once.
func (w *world) killed(name string, op workertest.Operation) workertest.Operation {
	w.t.Helper()
	for range 10 {
		w.run(name, op)
		w.build(w.url)
		r := w.run(name, op)
		switch r.Outcome {
		case succeeded, skipped:
			return r.Then()
		case retry:
			op.Details = r.Then().Details
			w.advance(takes)
		default:
			w.t.Fatalf("%s: %s, %+v", name, r.Outcome, r.Error)
		}
	}
	w.t.Fatalf("%s does not end", name)
	return op
}
