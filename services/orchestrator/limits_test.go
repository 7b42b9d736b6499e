package orchestrator_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
)

// limits applies a document through the operator API.
func (s *system) limits(document string, dryRun bool) (answer operator.LimitsAnswer, status int) {
	s.t.Helper()
	body, err := json.Marshal(operator.LimitsRequest{Document: document, DryRun: dryRun, By: "jane"})
	require.NoError(s.t, err)
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodPut, s.api.URL+"/limits", bytes.NewReader(body))
	require.NoError(s.t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(s.t, err)
	defer response.Body.Close()
	require.NoError(s.t, json.NewDecoder(response.Body).Decode(&answer))
	return answer, response.StatusCode
}

// applied applies a valid document.
func (s *system) applied(document string) {
	s.t.Helper()
	if _, status := s.limits(document, false); status != http.StatusOK {
		s.t.Fatalf("the limits are answered with %d", status)
	}
}

func TestLimits_Apply_RecordsTheDocument(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.start()
	const document = "# bounds\nlimits: [{name: beta, scope: {worker: beta}, each: plan, commands: 3, rate: 5/s}]\nweights: {ga: 2}\n"
	added := []string{"beta: added: at most 3 commands in flight and a rate of 5/s for each plan of worker beta", "weight of ga: 2; was 1"}
	for _, tt := range []struct {
		document string
		dryRun   bool
		want     operator.LimitsAnswer
	}{
		{document, true, operator.LimitsAnswer{Version: 0, Changes: added}},
		{document, false, operator.LimitsAnswer{Version: 1, Changes: added}},
		{document, false, operator.LimitsAnswer{Version: 1, Changes: []string{}}},
		{document + "# more\n", false, operator.LimitsAnswer{Version: 2, Changes: []string{}}},
	} {
		got, status := s.limits(tt.document, tt.dryRun)
		if diff := cmp.Diff(tt.want, got); diff != "" || status != http.StatusOK {
			t.Errorf("status %d, answer differs (-want +got):\n%s", status, diff)
		}
	}
	if _, status := s.limits("limits: [{name: x}]", false); status != http.StatusBadRequest {
		t.Errorf("an invalid document is answered with %d, want 400", status)
	}
	var got operator.Limits
	s.get("/limits", &got)
	if got.AppliedAt == nil || got.AppliedAt.IsZero() {
		t.Errorf("applied at %v", got.AppliedAt)
	}
	want := operator.Limits{
		Version: 2, Document: document + "# more\n", AppliedBy: "jane", AppliedAt: got.AppliedAt, Weights: map[string]float64{"ga": 2},
		Limits: []operator.Limit{{Name: "beta", Scope: map[string][]string{"worker": {"beta"}}, Each: "plan", Commands: 3, Rate: "5/s"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("limits differ (-want +got):\n%s", diff)
	}
	var actions operator.List[operator.Action]
	s.get("/actions", &actions)
	details := map[string]bool{}
	for i := range actions.Data {
		details[actions.Data[i].Action+": "+actions.Data[i].Detail] = true
	}
	for _, want := range []string{"apply_limits: preview: " + added[0] + "; " + added[1], "apply_limits: " + added[0] + "; " + added[1]} {
		if !details[want] {
			t.Errorf("the actions do not have %q: %v", want, details)
		}
	}
}
