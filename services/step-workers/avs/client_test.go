package avs

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

func TestDetach_NotAChild_IsNoError(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		status int
		body   string
		gone   bool
	}{
		{"removed", http.StatusOK, "", true},
		{"unknown", http.StatusNotFound, "", true},
		{"not a child", http.StatusBadRequest, `{"status":400,"message":"Evaluation 1 does not contain subevaluation 2"}`, true},
		{"not a child, in upper case", http.StatusBadRequest, `{"status":400,"message":"Evaluation 1 DOES NOT CONTAIN Subevaluation 2"}`, true},
		{"no words", http.StatusBadRequest, "", true},
		{"another refusal", http.StatusBadRequest, `{"status":400,"message":"no"}`, false},
		{"garbage", http.StatusBadRequest, "<html>", false},
		{"no content", http.StatusNoContent, "", false},
		{"an outage", http.StatusBadGateway, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/token" {
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"access_token":"t","expires_in":3600}`)
					return
				}
				asked = append(asked, r.Method+" "+r.URL.Path)
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			}))
			defer server.Close()
			c, err := newClient(Config{URL: server.URL + "/e", TokenURL: server.URL + "/token"}, extclient.Deps{})
			require.NoError(t, err)
			if err := c.detach(t.Context(), 1, 2); (err == nil) != test.gone {
				t.Errorf("got %v", err)
			}
			if strings.Join(asked, " ") != "DELETE /e/1/child/2" {
				t.Errorf("requests %v", asked)
			}
		})
	}
}

func TestEvaluation_LongNames_AreShortened(t *testing.T) {
	t.Parallel()
	op := worker.Operation{
		InstanceID: "5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20", Plan: event.Plan{Name: "aws"},
		Context: event.Context{GlobalAccountID: strings.Repeat("g", 64), SubaccountID: strings.Repeat("s", 64)},
		Runtime: event.Runtime{Name: strings.Repeat("ä", 100), ShootName: "c-1"},
	}
	e := internal.definition(Config{}, op)
	if len(e.Name) > maxName || !strings.HasPrefix(e.Name, "K8S-AWS-Kyma-int-5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20-ä") || e.Service != e.Name {
		t.Errorf("name %q, service %q", e.Name, e.Service)
	}
	if len(e.Description) > maxDescription || !strings.Contains(e.Description, op.InstanceID) || !strings.HasSuffix(e.Description, "}") {
		t.Errorf("description %q", e.Description)
	}
}

func TestPlaceOf_TrialIDsComplete_AreForInternalEvaluations(t *testing.T) {
	t.Parallel()
	cfg := Config{
		GroupID: 1, ParentID: 2, Internal: Tester{TesterAccessID: 3}, External: Tester{TesterAccessID: 4}, Trial: Place{7, 8, 9},
	}
	incomplete := cfg
	incomplete.Trial.ParentID = 0
	trial := worker.Operation{Plan: event.Plan{Name: "trial"}}
	for name, tc := range map[string]struct {
		kind kind
		cfg  Config
		op   worker.Operation
		want Place
	}{
		"internal":             {internal, cfg, worker.Operation{}, Place{3, 1, 2}},
		"external":             {external, cfg, worker.Operation{}, Place{4, 1, 2}},
		"internal of a trial":  {internal, cfg, trial, Place{7, 8, 9}},
		"external of a trial":  {external, cfg, trial, Place{4, 1, 2}},
		"incomplete trial ids": {internal, incomplete, trial, Place{3, 1, 2}},
	} {
		if got := placeOf(tc.kind, tc.cfg, tc.op); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestConfig_IDMissing_IsRefused(t *testing.T) {
	t.Parallel()
	c := Config{URL: "http://avs", TokenURL: "http://avs/token", RetryInterval: 1, RuntimeInterval: 1}
	c.ProvisionerURL = "http://provisioner"
	err := c.Validate()
	for _, name := range []string{
		"KEB_AVS_GROUP_ID", "KEB_AVS_PARENT_ID", "KEB_AVS_INTERNAL_TESTER_ACCESS_ID", "KEB_AVS_EXTERNAL_TESTER_ACCESS_ID",
	} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want an error with %s", err, name)
		}
	}
}

func TestTags_NotAListOfTags_IsRefused(t *testing.T) {
	t.Parallel()
	var tags Tags
	if err := tags.UnmarshalText([]byte(`[{"content":"c","tag_class_id":1,"tag_class_name":"n"}]`)); err != nil || len(tags) != 1 {
		t.Errorf("%v, %v", tags, err)
	}
	if err := tags.UnmarshalText(nil); err != nil || tags != nil {
		t.Errorf("an empty text is %v, %v, want nil", tags, err)
	}
	for _, text := range []string{`{}`, `[{"class":1}]`, `x`} {
		if err := tags.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}
