package landscape_test

import "testing"

func TestIASServiceProvider(t *testing.T) {
	t.Parallel()
	w := setup(t)
	user := basic("keb", "keb")
	const name = "SKR Grafana (instanceID: i-1)"
	w.must(201, "POST", "/ias/service/sps", "sp_name=SKR+Grafana+%28instanceID%3A+i-1%29&company_id=global", user, header("Content-Type", "application/x-www-form-urlencoded"))
	company := w.must(200, "GET", "/ias/service/company/global", nil, user)
	if got := text(t, company, "service_providers", 0, "name"); got != name {
		t.Errorf("name is %q, want %q", got, name)
	}
	id := text(t, company, "service_providers", 0, "id")

	w.must(204, "PUT", "/ias/service/sps/"+id, map[string]any{"ssoType": "openIdConnect"}, user)
	w.must(204, "PUT", "/ias/service/sps/"+id+"/rba", map[string]any{"rba_config": "{}"}, user)
	secret := w.must(200, "PUT", "/ias/service/sps", map[string]any{"id": id, "rest_api_client_secret": map[string]any{}}, user)
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
		t.Errorf("IAS holds %d service providers of %d ever made, want 0 of 1", now, ever)
	}
}
