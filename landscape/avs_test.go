package landscape_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/landscape"
)

const evaluations = "/avs/api/v2/evaluationmetadata"

func newEvaluation(name string) map[string]any {
	return map[string]any{
		"definition_type": "BASIC", "name": name, "description": "{}", "service": name, "url": "", "check_type": "",
		"interval": 60, "tester_access_id": 1, "timeout": 30000, "read_only": false, "content_check": "error",
		"content_check_type": "NOT_CONTAINS", "threshold": "30000", "group_id": 2, "visibility": "PUBLIC", "parent_id": 77, "tags": nil,
	}
}

func TestAvS_Evaluation_IsCreatedAndDeleted(t *testing.T) {
	t.Parallel()
	w := setup(t)
	token := w.avsToken()

	created := w.must(200, "POST", evaluations, newEvaluation("K8S-AZR-Kyma-int-1"), token)
	if threshold, ok := at(t, created, "threshold").(float64); !ok || threshold != 30000 {
		t.Errorf("threshold is %v, want the number 30000", created["threshold"])
	}
	if got := text(t, created, "status"); got != "ACTIVE" {
		t.Errorf("status is %s, want ACTIVE", got)
	}
	path := fmt.Sprintf("%s/%v", evaluations, created["id"])

	w.must(200, "POST", path+"/tag", map[string]any{"content": "c-1", "tag_class_id": 9, "tag_class_name": ""}, token)
	w.must(200, "PUT", path+"/lifecycle", `"MAINTENANCE"`, token)
	got := w.must(200, "GET", path, nil, token)
	if text(t, got, "status") != "MAINTENANCE" || text(t, got, "tags", 0, "content") != "c-1" {
		t.Errorf("evaluation after tag and maintenance: %v", got)
	}
	w.must(400, "PUT", path+"/lifecycle", `"ASLEEP"`, token)

	child := fmt.Sprintf("%s/77/child/%v", evaluations, created["id"])
	w.must(200, "DELETE", child, nil, token)
	again := w.must(400, "DELETE", child, nil, token)
	if !strings.Contains(text(t, again, "message"), "does not contain subevaluation") {
		t.Errorf("removing a child twice returns %v", again)
	}

	w.must(200, "DELETE", path, nil, token)
	w.must(404, "DELETE", path, nil, token)
	w.must(404, "GET", path, nil, token)
	if now, ever := w.held("avs", "evaluation"); now != 0 || ever != 1 {
		t.Errorf("AvS holds %d evaluations of %d ever created, want 0 of 1", now, ever)
	}
}

func TestAvS_LookUpIsOn_FindsEvaluationsByExactName(t *testing.T) {
	t.Parallel()
	w := openWith(t, landscape.Config{AvSLookUp: true}, newClock())
	token := w.avsToken()
	const one = "K8S-AZR-Kyma-int-one"
	for _, name := range []string{one, one + "-and-more", one} {
		w.must(200, "POST", evaluations, newEvaluation(name), token)
	}
	_, raw := w.call("GET", evaluations+"?name="+one, nil, token)
	var found []map[string]any
	require.NoError(t, json.Unmarshal(raw, &found))
	if len(found) != 2 {
		t.Errorf("found %d evaluations named one, want 2: duplicates must show", len(found))
	}
	w.must(400, "GET", evaluations, nil, token)
}

func TestAvS_LookUpOff_CollectionIsNotServed(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.must(405, "GET", evaluations+"?name=K8S-AZR-Kyma-int-1", nil, w.avsToken())
	if got := w.violations("avs"); len(got) != 1 {
		t.Errorf("violations %q, want one", got)
	}
}

func TestAvS_InvalidRequest_IsViolation(t *testing.T) {
	t.Parallel()
	w := setup(t)
	token := w.avsToken()
	created := w.must(200, "POST", evaluations, newEvaluation("K8S-AZR-Kyma-int-1"), token)
	path := fmt.Sprintf("%s/%v", evaluations, created["id"])
	for problem, change := range map[string]func(map[string]any){
		"name: must match":            func(e map[string]any) { e["name"] = "" },
		"name: must have at most 80":  func(e map[string]any) { e["name"] = "K8S-AZR-Kyma-int-" + strings.Repeat("x", 64) },
		"definition_type: must be":    func(e map[string]any) { e["definition_type"] = "FANCY" },
		"threshold: must be 30000":    func(e map[string]any) { e["threshold"] = 30000 },
		"description: must have":      func(e map[string]any) { e["description"] = strings.Repeat("x", 256) },
		"service: must have at least": func(e map[string]any) { e["service"] = "" },
		"group_id: must be at least":  func(e map[string]any) { e["group_id"] = 0 },
		"body: required: parent_id":   func(e map[string]any) { delete(e, "parent_id") },
		"body: required: tags":        func(e map[string]any) { delete(e, "tags") },
		"body: unknown: owner":        func(e map[string]any) { e["owner"] = "me" },
		"url, check_type, name: an":   func(e map[string]any) { e["check_type"] = "HTTPSGET" },
	} {
		body := newEvaluation("K8S-AZR-Kyma-int-2")
		change(body)
		w.violates("avs", problem, 400, "POST", evaluations, body, token)
	}
	w.violates("avs", "body: not one JSON value", 400, "POST", evaluations, `{"name":`, token)
	w.violates("avs", "tag_class_name: must be", 400, "POST", path+"/tag", `{"content":"c","tag_class_id":1,"tag_class_name":"shoot"}`, token)
	w.violates("avs", "body: must be one of", 400, "PUT", path+"/lifecycle", `"ASLEEP"`, token)
	w.violates("avs", "header Content-Type", 400, "PUT", path+"/lifecycle", `"ACTIVE"`, token, header("Content-Type", "text/plain"))
	w.violates("avs", "query parameter force: unknown", 400, "DELETE", path+"?force=true", nil, token)
}

func TestAPIs_WrongCredentials_AreRejected(t *testing.T) {
	t.Parallel()
	w := setup(t)
	form := header("Content-Type", "application/x-www-form-urlencoded")
	w.must(401, "POST", "/avs/oauth2/token", "grant_type=password&username=keb&password=wrong", basic("keb", ""), form)
	w.must(401, "POST", "/avs/oauth2/token", "grant_type=password&username=keb&password=keb", basic("stranger", ""), form)
	w.must(400, "POST", "/avs/oauth2/token", "grant_type=client_credentials", basic("keb", ""), form)
	w.must(401, "POST", "/edp/oauth2/token", "grant_type=client_credentials&scope=edp-namespace.read+edp-namespace.update", basic("edp-namespace%3Bkyma", "wrong"), form)
	w.must(401, "POST", "/edp/oauth2/token", "grant_type=client_credentials&scope=edp-namespace.read+edp-namespace.update", basic("keb", "keb"), form)
	w.must(401, "POST", "/director/oauth2/token", "grant_type=client_credentials&scope=runtime:read+runtime:write", basic("keb", "wrong"), form)
	w.must(400, "POST", "/director/oauth2/token", "grant_type=client_credentials&scope=runtime:read", basic("keb", "keb"), form)
	w.must(400, "POST", "/director/oauth2/token", "grant_type=client_credentials", basic("keb", "keb"), form)
	if got := w.violations("director"); len(got) != 2 || !strings.Contains(got[0], "scope must be") || !strings.Contains(got[1], "required: scope") {
		t.Errorf("violations of the director: %q", got)
	}

	edp := w.clientToken("/edp/oauth2/token", "edp-namespace;kyma")
	for _, c := range []struct {
		status       int
		method, path string
		option       option
	}{
		{401, "GET", evaluations + "/1", bearer("nonsense")},
		{401, "GET", evaluations + "/1", edp}, // of another system
		{401, "DELETE", "/edp/namespaces/kyma/dataTenants/a/prod", w.avsToken()},
		{403, "DELETE", "/edp/namespaces/other/dataTenants/a/prod", edp},
		{401, "GET", "/ias/service/company/global", basic("keb", "wrong")},
		{401, "POST", "/director/graphql", bearer("x")},
		{401, "GET", "/k8s/control-plane/api/v1/namespaces", bearer("wrong")},
		{401, "GET", "/k8s/gardener/api/v1/namespaces", header("X-None", "")},
		{503, "GET", "/k8s/runtimes/none/api/v1/namespaces", bearer("keb")},
	} {
		w.must(c.status, c.method, c.path, nil, c.option)
	}

	token := w.avsToken()
	w.clock.Advance(2 * clusterTime)
	w.must(404, "GET", evaluations+"/1", nil, token)
	w.clock.Advance(3600e9)
	w.must(401, "GET", evaluations+"/1", nil, token)
}
