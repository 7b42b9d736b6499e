package catalog

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// JSON decoders in Go ignore the case of a member's name, and the last of several members wins. A misspelled member would pass every
// check, and could name the hyperscaler account of another customer.
func TestResolve_MisspelledMember_IsDropped(t *testing.T) {
	t.Parallel()
	const order = `{"name":"n","targetsecret":"another account's","machinetype":"huge","autoscalermax":5000,"EUACCESS":true,
		"LICENCE_TYPE":"x","volumesizegb":"all","kymaverſion":"9.9.9","KubeConfig":"CANARY","future":{"machinetype":1}}`
	r, err := resolve(t, newCatalog(t, nil), Azure, "", order)
	require.NoError(t, err)
	var read struct {
		TargetSecret  string `json:"targetSecret"`
		MachineType   string `json:"machineType"`
		AutoScalerMax int    `json:"autoScalerMax"`
		VolumeSizeGB  int    `json:"volumeSizeGb"`
		KymaVersion   string `json:"kymaVersion"`
		LicenceType   string `json:"licence_type"`
		EUAccess      bool   `json:"euAccess"`
	}
	require.NoErrorf(t, json.Unmarshal(r.Effective, &read), "%s cannot be read", r.Effective)
	if read.TargetSecret != "" || read.MachineType != "Standard_D4_v3" || read.AutoScalerMax != 20 || read.VolumeSizeGB != 50 ||
		read.KymaVersion != "" || read.LicenceType != "" || read.EUAccess {
		t.Errorf("a worker reads %+v", read)
	}
	if strings.Contains(string(r.Sent)+string(r.Effective), "CANARY") {
		t.Error("a kubeconfig is kept in the clear")
	}
	if !strings.Contains(string(r.Effective), "future") {
		t.Error("an unknown member is lost")
	}
	// The same applies to an update, also of an older instance.
	changed, err := newCatalog(t, nil).ResolveUpdate(Update{
		PlanID: r.Plan.ID, Runtime: r.Runtime, Sent: json.RawMessage(`{"name":"n"}`),
		Effective:  json.RawMessage(`{"machineType":"Standard_D4_v3","machinetype":"huge","autoScalerMin":3,"autoScalerMax":20}`),
		Parameters: json.RawMessage(`{"machinetype":"larger","autoScalerMax":30}`),
	})
	if err != nil || strings.Contains(string(changed.Effective)+string(changed.Parameters), "machinetype") {
		t.Errorf("after an update: %v, %+v", err, changed)
	}
}
