package landscape_test

import "testing"

func TestIAS_ServiceProvider_IsConfigured(t *testing.T) {
	t.Parallel()
	w := setup(t)
	user := basic("keb", "keb")
	const name = "SKR Grafana (instanceID: i-1)"
	w.must(201, "POST", "/ias/service/sps", "sp_name=SKR+Grafana+%28instanceID%3A+i-1%29&company_id=global", user, header("Content-Type", "application/x-www-form-urlencoded"))
	company := w.must(200, "GET", "/ias/service/company/global", nil, user)
	if got := text(t, company, "service_providers", 0, "display_name"); got != name {
		t.Errorf("name is %q, want %q", got, name)
	}
	id := text(t, company, "service_providers", 0, "id")

	w.must(204, "PUT", "/ias/service/sps/"+id, `{"name_id_attribute":"mail"}`, user)
	w.must(204, "PUT", "/ias/service/sps/"+id+"/rba", `{"service_provider":{"rba_config":{"rba_rules":[{"action":"Allow","group":"g","group_type":"Cloud"}],"default_action":"Deny"}}}`, user)
	secret := w.must(200, "PUT", "/ias/service/sps", `{"organization":"global","id":"`+id+`","rest_api_client_secret":{"description":"SAP Kyma Runtime Secret","scopes":["ManageApp","ManageUsers","OAuth"]}}`, user)
	client := text(t, secret, "clientId")
	w.must(200, "DELETE", "/ias/service/sps/clientSecret", map[string]any{"clientId": client, "clientSecretsIds": []string{"x"}}, user)
	company = w.must(200, "GET", "/ias/service/company/global", nil, user)
	kept := text(t, company, "service_providers", 0, "clientSecrets", 0, "clientSecretId")
	w.must(200, "DELETE", "/ias/service/sps/clientSecret", map[string]any{"clientId": client, "clientSecretsIds": []string{kept}}, user)
	company = w.must(200, "GET", "/ias/service/company/global", nil, user)
	if left := at(t, company, "service_providers", 0, "clientSecrets").([]any); len(left) != 0 {
		t.Errorf("secrets %v are left", left)
	}

	w.must(200, "PUT", "/ias/service/sps/delete?sp_id="+id, nil, user)
	w.must(404, "PUT", "/ias/service/sps/delete?sp_id="+id, nil, user)
	if now, ever := w.held("ias", "serviceProvider"); now != 0 || ever != 1 {
		t.Errorf("IAS holds %d service providers of %d ever created, want 0 of 1", now, ever)
	}
}

func TestIAS_InvalidRequest_IsViolation(t *testing.T) {
	t.Parallel()
	w := setup(t)
	user := basic("keb", "keb")
	for _, c := range []struct {
		problem, method, path string
		body                  string
	}{
		{"service_provider", "PUT", "/sps/x/rba", `{"rba_config":{"rba_rules":[],"default_action":"Deny"}}`},
		{"body: unknown: name_id_attribute", "PUT", "/sps/x", `{"name_id_attribute":"mail","assertion_attributes":[]}`},
		{"description: must be SAP Kyma", "PUT", "/sps", `{"organization":"global","id":"x","rest_api_client_secret":{"description":"Kyma","scopes":["ManageApp","ManageUsers","OAuth"]}}`},
		{"body: required: clientSecretsIds", "DELETE", "/sps/clientSecret", `{"clientId":"x"}`},
		{"header Content-Type", "POST", "/sps", `{}`},
		{"query parameter full: unknown", "GET", "/company/global?full=1", ""},
	} {
		w.violates("ias", c.problem, 400, c.method, "/ias/service"+c.path, c.body, user)
	}
}
