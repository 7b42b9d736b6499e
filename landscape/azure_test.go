package landscape_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	azureGroups = "/azure/subscriptions/sub-1/resourcegroups"
	version     = "?api-version=2019-05-01"
	hubVersion  = "?api-version=2017-04-01"
)

func tags(instance string) map[string]any {
	return map[string]any{"InstanceID": instance, "SubAccountID": "SA-1", "OperationID": "op-1"}
}

func (w *world) azureToken() option {
	w.t.Helper()
	got := w.must(200, "POST", "/azure/tenant-1/oauth2/token?api-version=1.0", "grant_type=client_credentials&resource=https://management.azure.com/", basic("keb", "keb"), header("Content-Type", "application/x-www-form-urlencoded"))
	return bearer(text(w.t, got, "access_token"))
}

// tagged lists the names of the resource groups with a tag.
func (w *world) tagged(name, value string, token option) []any {
	w.t.Helper()
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	filter := url.QueryEscape("tagName eq " + quote(name) + " and tagValue eq " + quote(value))
	return at(w.t, w.must(200, "GET", azureGroups+version+"&$filter="+filter, nil, token), "value").([]any)
}

func TestAzure_EventHubs_AreRemovedWithGroup(t *testing.T) {
	t.Parallel()
	w := setup(t)
	token := w.azureToken()
	const (
		group     = azureGroups + "/kgroup1"
		namespace = group + "/providers/Microsoft.EventHub/namespaces/kgroup1"
		keys      = namespace + "/authorizationRules/RootManageSharedAccessKey/listKeys" + hubVersion
	)
	body := map[string]any{"location": "westeurope", "tags": tags("it's 1")}
	w.must(404, "PUT", namespace+hubVersion, body, token)
	w.must(201, "PUT", group+version, body, token)
	w.must(200, "PUT", group+version, body, token)
	w.must(409, "PUT", group+version, map[string]any{"location": "eastus", "tags": tags("it's 1")}, token)
	if found := w.tagged("InstanceID", "it's 1", token); len(found) != 1 || text(t, found[0], "name") != "kgroup1" {
		t.Errorf("by tag: %v", found)
	}
	for name, value := range map[string]string{"InstanceID": "other", "Other": "it's 1"} {
		if found := w.tagged(name, value, token); len(found) != 0 {
			t.Errorf("tag %s=%s finds %v", name, value, found)
		}
	}

	w.must(201, "PUT", namespace+hubVersion, body, token)
	if got := w.must(200, "GET", namespace+hubVersion, nil, token); text(t, got, "properties", "provisioningState") != "Creating" {
		t.Errorf("a new namespace is %v", got)
	}
	w.must(409, "POST", keys, nil, token)
	w.clock.Advance(reconcileTime)
	if got := w.must(200, "GET", namespace+hubVersion, nil, token); text(t, got, "properties", "provisioningState") != "Succeeded" {
		t.Errorf("a namespace that is due is %v", got)
	}
	first := text(t, w.must(200, "POST", keys, nil, token), "primaryConnectionString")
	if !strings.HasPrefix(first, "Endpoint=sb://kgroup1.servicebus.example.com/;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=") {
		t.Errorf("connection string %s", first)
	}
	w.must(200, "PUT", namespace+hubVersion, body, token)
	if again := text(t, w.must(200, "POST", keys, nil, token), "primaryConnectionString"); again != first {
		t.Error("a repeated PUT changes the keys")
	}
	if objects := w.must(200, "GET", "/admin/systems/azure/objects?kind=namespace", nil); strings.Contains(text(t, objects, "data", 0, "sharedAccessSecretKey"), "-") {
		t.Error("the admin API shows the key")
	}

	resp := w.removal(group+version, token)
	if resp.StatusCode != 202 || resp.Header.Get("Retry-After") != "20" || !strings.HasPrefix(resp.Header.Get("Location"), w.url) {
		t.Errorf("deletion: %d, %v", resp.StatusCode, resp.Header)
	}
	result := strings.TrimPrefix(resp.Header.Get("Location"), w.url)
	w.must(202, "GET", result, nil, token)
	w.must(409, "PUT", group+version, body, token)
	if found := w.tagged("InstanceID", "it's 1", token); text(t, found, 0, "properties", "provisioningState") != "Deleting" {
		t.Errorf("while it is deleted: %v", found)
	}
	w.clock.Advance(reconcileTime / 2)
	w.must(200, "GET", result, nil, token)
	w.must(404, "GET", group+version, nil, token)
	w.must(404, "DELETE", group+version, nil, token)
	for _, kind := range []string{"resourceGroup", "namespace"} {
		if now, ever := w.held("azure", kind); now != 0 || ever != 1 {
			t.Errorf("Azure holds %d of %d %s, want 0 of 1", now, ever, kind)
		}
	}
}

// removal returns the whole answer to a DELETE.
func (w *world) removal(path string, o option) *http.Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodDelete, w.url+path, nil)
	require.NoError(w.t, err)
	o(r)
	resp, err := w.http.Do(r)
	require.NoError(w.t, err)
	_ = resp.Body.Close()
	return resp
}

func TestAzure_InvalidRequest_IsViolation(t *testing.T) {
	t.Parallel()
	w := setup(t)
	token := w.azureToken()
	form := header("Content-Type", "application/x-www-form-urlencoded")
	w.must(401, "POST", "/azure/t/oauth2/token?api-version=1.0", "grant_type=client_credentials&resource=https://management.azure.com/", basic("keb", "wrong"), form)
	w.must(401, "GET", azureGroups+version, nil, w.avsToken())
	if got := w.violations("azure"); len(got) > 0 {
		t.Errorf("wrong credentials are violations: %q", got)
	}
	w.must(201, "PUT", azureGroups+"/k1"+version, map[string]any{"location": "westeurope", "tags": tags("1")}, token)
	const (
		login     = "/azure/t/oauth2/token?api-version=1.0"
		namespace = azureGroups + "/k1/providers/Microsoft.EventHub/namespaces/"
		resource  = "&resource=https://management.azure.com/"
	)
	put := map[string]any{"location": "westeurope", "tags": tags("1")}
	client := basic("keb", "keb")
	w.violates("azure", "form member resource", 400, "POST", login, "grant_type=client_credentials", client, form)
	w.violates("azure", "form: grant_type", 400, "POST", login, "grant_type=password"+resource, client, form)
	w.violates("azure", "query parameter api-version", 400, "GET", azureGroups, nil, token)
	w.violates("azure", "query parameter $filter: must be", 400, "GET", azureGroups+version+"&$filter=name", nil, token)
	w.violates("azure", "query parameter $filter: unknown", 400, "GET", azureGroups+"/k1"+version+"&$filter=name", nil, token)
	w.violates("azure", "query parameter force: unknown", 400, "DELETE", azureGroups+"/k1"+version+"&force=true", nil, token)
	w.violates("azure", "body: required: location, tags", 400, "PUT", azureGroups+"/k1"+version, map[string]any{}, token)
	w.violates("azure", "header Content-Type", 400, "PUT", azureGroups+"/k1"+version, put, token, header("Content-Type", "text/plain"))
	w.violates("azure", "2 to 90 letters", 400, "PUT", azureGroups+"/k."+version, put, token)
	w.violates("azure", "6 to 50 letters", 400, "PUT", namespace+"1k"+hubVersion, put, token)
	w.must(201, "PUT", namespace+"kgroup1"+hubVersion, put, token)
	w.violates("azure", "path: the authorization rule", 404, "POST", namespace+"kgroup1/authorizationRules/Other/listKeys"+hubVersion, nil, token)
}
