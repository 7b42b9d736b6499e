package hyperscaler_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
)

func (p *process) windows(question string) (event.MaintenanceWindowsAnswer, error) {
	p.g.t.Helper()
	if len(p.questions) != 1 || p.questions[0].Subject != event.AskMaintenanceWindows {
		p.g.t.Fatalf("it answers %v", p.questions)
	}
	answer, err := p.questions[0].Answer(p.g.t.Context(), []byte(question))
	windows, _ := answer.(event.MaintenanceWindowsAnswer)
	return windows, err
}

func TestWindows_ManyShoots_AreReadInOneCall(t *testing.T) {
	t.Parallel()
	g := newGarden(t, 1)
	for name, window := range map[string]any{
		"c-1": map[string]any{"begin": "220000+0100", "end": "020000+0100"},
		"c-2": map[string]any{"begin": "040000+0000", "end": "050000+0000"},
		"c-3": map[string]any{"begin": "at night", "end": "050000+0000"},
		"c-4": "never",
		"c-5": nil,
	} {
		g.api(http.MethodPost, shoots, map[string]any{
			"metadata": map[string]any{"name": name}, "spec": map[string]any{"maintenance": map[string]any{"timeWindow": window}},
		}, nil)
	}
	got, err := g.process(nil).windows(`{"shootNames":["c-1","c-3","c-4","c-5","c-6","c-1"]}`)
	want := []event.MaintenanceWindow{{ShootName: "c-1", Begin: "220000+0100", End: "020000+0100"}}
	if diff := cmp.Diff(want, got.Windows); diff != "" || err != nil {
		t.Errorf("%v, windows (-want +got):\n%s", err, diff)
	}
	if n := g.calls.Load(); n != 1 {
		t.Errorf("%d calls, want 1", n)
	}
}

func TestWindows_InvalidQuestion_ReturnsReason(t *testing.T) {
	t.Parallel()
	g := newGarden(t, 1)
	p := g.process(nil)
	for question, want := range map[string]string{
		`[`:                    "shootNames",
		`{"shootNames":"c-1"}`: "shootNames",
		fmt.Sprintf(`{"shootNames":[%s"x"]}`, strings.Repeat(`"x",`, 1000)): "1001 names: at most 1000",
	} {
		if _, err := p.windows(question); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %q", question, err, want)
		}
	}
	answer, err := p.windows(`{"shootNames":[]}`)
	if raw, _ := json.Marshal(answer); err != nil || string(raw) != `{"windows":[]}` || g.calls.Load() != 0 {
		t.Errorf("%s, %v after %d calls", raw, err, g.calls.Load())
	}
	failing := g.process(func(*http.Request, http.RoundTripper) (*http.Response, error) {
		return instead(http.StatusForbidden), nil
	})
	if _, err := failing.windows(`{"shootNames":["c-1"]}`); err == nil {
		t.Error("no error without an answer of Gardener")
	}
}
