package landscape_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestEDPTenantWithMetadata(t *testing.T) {
	t.Parallel()
	w := setup(t)
	token := w.clientToken("/edp/oauth2/token", "edp-namespace;kyma")
	const tenants = "/edp/namespaces/kyma/dataTenants"
	const metadata = tenants + "/sub-1/dev/metadata"
	tenant := map[string]any{"name": "sub-1", "environment": "dev", "secret": "c3ViLTFkZXY="}

	w.must(404, "POST", metadata, map[string]any{"key": "k", "value": "v"}, token)
	w.must(201, "POST", tenants, tenant, token)
	w.must(409, "POST", tenants, tenant, token)
	w.must(201, "POST", metadata, map[string]any{"key": "maasConsumerRegion", "value": "cf-eu10"}, token)
	w.must(409, "POST", metadata, map[string]any{"key": "maasConsumerRegion", "value": "cf-eu10"}, token)

	_, raw := w.call("GET", metadata, nil, token)
	var got []any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	want := []any{map[string]any{
		"dataTenant": map[string]any{"namespace": map[string]any{"name": "kyma"}, "name": "sub-1", "environment": "dev"},
		"key":        "maasConsumerRegion", "value": "cf-eu10",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}

	w.must(204, "DELETE", metadata+"/maasConsumerRegion", nil, token)
	w.must(404, "DELETE", metadata+"/maasConsumerRegion", nil, token)
	w.must(204, "DELETE", tenants+"/sub-1/dev", nil, token)
	w.must(404, "DELETE", tenants+"/sub-1/dev", nil, token)
	w.must(400, "POST", tenants, map[string]any{"name": "sub-1"}, token)
}

func TestEDPTenantTakesItsMetadataAlong(t *testing.T) {
	t.Parallel()
	w := setup(t)
	token := w.clientToken("/edp/oauth2/token", "edp-namespace;kyma")
	const tenants = "/edp/namespaces/kyma/dataTenants"
	for _, name := range []string{"sub-1", "sub-10"} {
		w.must(201, "POST", tenants, map[string]any{"name": name, "environment": "dev", "secret": "s"}, token)
		w.must(201, "POST", tenants+"/"+name+"/dev/metadata", map[string]any{"key": "k", "value": "v"}, token)
	}
	w.must(204, "DELETE", tenants+"/sub-1/dev", nil, token)
	if now, ever := w.held("edp", "metadata"); now != 1 || ever != 2 {
		t.Errorf("EDP holds %d entries of %d ever made, want 1 of 2", now, ever)
	}
}
