package broker_test

import (
	"net/http"
	"strings"
	"testing"
)

// An earlier release accepted parameters of wrong types. Such an instance must not hide the others from operators.
func TestRuntimes_ParameterOfWrongType_ListsTheRest(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for id, odd := range map[string]string{
		"components": `{"components":"all"}`, "case": `{"MachineType":5,"ZONES":true}`, "number": `{"AUTOSCALERMIN":1.5}`,
	} {
		b.provisioned(id)
		b.exec(`UPDATE broker.instances SET effective_parameters = (effective_parameters::jsonb || $2::jsonb)::json WHERE id = $1`, id, odd)
	}
	list := b.runtimes("?kyma_config=true&cluster_config=true")
	if list.TotalCount != 3 {
		t.Fatalf("%d runtimes", list.TotalCount)
	}
	for _, r := range list.Data {
		if c := r.ClusterConfig; c["machineType"] != "Standard_D4_v3" || c["autoScalerMax"] != 20.0 {
			t.Errorf("%s: cluster is %v", r.InstanceID, c)
		}
	}
	if a := b.send(http.MethodGet, "/info/runtimes", nil); a.status != http.StatusOK {
		t.Errorf("status %d %s", a.status, a.raw)
	}
}

// Parameters that a worker cannot decode would fail the provisioning halfway.
func TestOrder_InvalidComponents_IsRejected(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for _, components := range []any{"all", 5, []any{1}, []any{""}} {
		a := b.put("i", with(order(azure), "parameters", map[string]any{"name": "n", "components": components}))
		if a.status != http.StatusBadRequest || !strings.Contains(a.text("description"), "parameters/components") {
			t.Errorf("%v: status %d %s", components, a.status, a.raw)
		}
	}
	b.accepted(b.put("i", with(order(azure), "parameters", map[string]any{"name": "n", "components": []string{"serverless"}})))
}
