package avs

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

func TestDetachKnowsWhatIsNotAChild(t *testing.T) {
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
		{"no words", http.StatusBadRequest, "", true},
		{"another refusal", http.StatusBadRequest, `{"status":400,"message":"no"}`, false},
		{"garbage", http.StatusBadRequest, "<html>", false},
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
			if err != nil {
				t.Fatal(err)
			}
			if err := c.detach(t.Context(), 1, 2); (err == nil) != test.gone {
				t.Errorf("got %v", err)
			}
			if strings.Join(asked, " ") != "DELETE /e/1/child/2" {
				t.Errorf("asked %v", asked)
			}
		})
	}
}

func TestEvaluationFitsTheLimitsOfTheService(t *testing.T) {
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

func TestPlacesOfEvaluations(t *testing.T) {
	t.Parallel()
	cfg := Config{Internal: Place{1, 1, 1}, External: Place{2, 2, 2}, Trial: Place{3, 3, 3}}
	trial := worker.Operation{Plan: event.Plan{Name: "trial"}}
	incomplete := cfg
	incomplete.Trial.ParentID = 0
	for want, got := range map[int64]Place{
		1: internal.place(cfg, worker.Operation{}), 2: external.place(cfg, trial), 3: internal.place(cfg, trial),
	} {
		if got.ParentID != want {
			t.Errorf("parent %d, want %d", got.ParentID, want)
		}
	}
	if got := internal.place(incomplete, trial); got != cfg.Internal {
		t.Errorf("an incomplete place is used: %+v", got)
	}
}
