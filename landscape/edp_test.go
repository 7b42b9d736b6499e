package landscape_test

import (
	"encoding/base64"
	"testing"
)

func TestEDP_TenantWithMetadata_IsStored(t *testing.T) {
	t.Parallel()
	w := setup(t)
	token := w.clientToken("/edp/oauth2/token", "edp-namespace;kyma")
	const tenants = "/edp/namespaces/kyma/dataTenants"
	const metadata = tenants + "/sub-1/prod/metadata"
	tenant := map[string]any{"name": "sub-1", "environment": "prod", "secret": "c3ViLTFwcm9k"}

	w.must(404, "POST", metadata, map[string]any{"key": "maasConsumerServicePlan", "value": "free"}, token)
	w.must(201, "POST", tenants, tenant, token)
	w.must(409, "POST", tenants, tenant, token)
	w.must(201, "POST", metadata, map[string]any{"key": "maasConsumerRegion", "value": "cf-eu10"}, token)
	w.must(409, "POST", metadata, map[string]any{"key": "maasConsumerRegion", "value": "cf-eu10"}, token)

	w.must(204, "DELETE", metadata+"/maasConsumerRegion", nil, token)
	w.must(404, "DELETE", metadata+"/maasConsumerRegion", nil, token)
	w.must(204, "DELETE", tenants+"/sub-1/prod", nil, token)
	w.must(404, "DELETE", tenants+"/sub-1/prod", nil, token)
	w.must(400, "POST", tenants, map[string]any{"name": "sub-1"}, token)
}

func TestEDP_TenantDeleted_RemovesMetadata(t *testing.T) {
	t.Parallel()
	w := setup(t)
	token := w.clientToken("/edp/oauth2/token", "edp-namespace;kyma")
	const tenants = "/edp/namespaces/kyma/dataTenants"
	for _, name := range []string{"sub-1", "sub-10"} {
		w.must(201, "POST", tenants, map[string]any{"name": name, "environment": "prod", "secret": base64.StdEncoding.EncodeToString([]byte(name + "prod"))}, token)
		w.must(201, "POST", tenants+"/"+name+"/prod/metadata", map[string]any{"key": "maasConsumerServicePlan", "value": "free"}, token)
	}
	w.must(204, "DELETE", tenants+"/sub-1/prod", nil, token)
	if now, ever := w.held("edp", "metadata"); now != 1 || ever != 2 {
		t.Errorf("EDP holds %d entries of %d ever created, want 1 of 2", now, ever)
	}
}

func TestEDP_InvalidRequest_IsViolation(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const tenants = "/edp/namespaces/kyma/dataTenants"
	token := w.clientToken("/edp/oauth2/token", "edp-namespace;kyma")
	w.must(201, "POST", tenants, map[string]any{"name": "sub-1", "environment": "prod", "secret": "c3ViLTFwcm9k"}, token)
	form := header("Content-Type", "application/x-www-form-urlencoded")
	const grant = "grant_type=client_credentials"
	w.violates("edp", "name: must match", 400, "POST", tenants, `{"name":"SUB","environment":"prod","secret":"x"}`, token)
	w.violates("edp", "secret: must be base64", 400, "POST", tenants, `{"name":"sub","environment":"prod","secret":"x"}`, token)
	for problem, body := range map[string]string{
		"key: must be one of":           `{"key":"k","value":"v"}`,
		"value: must be one of":         `{"key":"maasConsumerServicePlan","value":"azure"}`,
		"value: maasConsumerSubAccount": `{"key":"maasConsumerSubAccount","value":"sub-2"}`,
		"value: must match":             `{"key":"maasConsumerSubAccount","value":"SUB-1"}`,
	} {
		w.violates("edp", problem, 400, "POST", tenants+"/sub-1/prod/metadata", body, token)
	}
	w.violates("edp", "no such route", 405, "GET", tenants+"/sub-1/prod/metadata", nil, token)
	w.violates("edp", "query parameter force: unknown", 400, "DELETE", tenants+"/sub-1/prod?force=1", nil, token)
	client := basic("edp-namespace%3Bkyma", "keb")
	w.violates("edp", "form: required: scope", 400, "POST", "/edp/oauth2/token", grant, client, form)
	w.violates("edp", "form: scope must be", 400, "POST", "/edp/oauth2/token", grant+"&scope=x", client, form)
	w.violates("edp", "must be percent-encoded", 400, "POST", "/edp/oauth2/token", grant+"&scope=x", basic("edp-namespace;kyma", "keb"), form)
}
