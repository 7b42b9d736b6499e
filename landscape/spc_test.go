package landscape_test

import (
	"strings"
	"testing"
	"time"
)

const spcURL = "/spc/"

func maintenance(orchestration string, tenants ...any) map[string]any {
	return map[string]any{"orchestrationId": orchestration, "eventType": "1", "tenants": tenants}
}

func tenant(instance, state string) map[string]any {
	return map[string]any{"instanceId": instance, "startDateTime": "2026-01-02T03:00:00Z", "endDateTime": "2026-01-02T06:00:00Z", "eventState": state}
}

func TestSPCKeepsOneEventForEachOrchestration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, dir, &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
	w.must(404, "PATCH", spcURL+"updateMaintenanceEvent", maintenance("o-1", tenant("i-1", "1")))
	w.must(201, "POST", spcURL+"createMaintenanceEvent", maintenance("o-1", tenant("i-1", "1")))
	w.must(409, "POST", spcURL+"createMaintenanceEvent", maintenance("o-1", tenant("i-1", "1")))
	w.must(200, "PATCH", spcURL+"updateMaintenanceEvent", maintenance("o-1", tenant("i-2", "1")))
	w.must(200, "PATCH", spcURL+"updateMaintenanceEvent", maintenance("o-1", tenant("i-1", "2")))
	w.close()

	w = open(t, dir, w.clock)
	got := w.must(200, "GET", "/admin/systems/spc/objects", nil)
	if at(t, got, "totalCount") != 1.0 || text(t, got, "data", 0, "orchestrationId") != "o-1" {
		t.Fatalf("SPC holds %v", got)
	}
	if at(t, got, "data", 0, "tenants", 0, "eventState") != "2" || at(t, got, "data", 0, "tenants", 1, "eventState") != "1" {
		t.Errorf("instances are %v", got)
	}
	cancelled := w.must(200, "PATCH", spcURL+"cancelMaintenanceEvent", map[string]any{"orchestrationId": "o-1"})
	if at(t, cancelled, "tenants", 0, "eventState") != "2" || at(t, cancelled, "tenants", 1, "eventState") != "3" {
		t.Errorf("after the cancellation instances are %v", cancelled)
	}
	w.must(200, "PUT", "/admin/systems/spc", map[string]any{"outage": true})
	w.must(503, "PATCH", spcURL+"cancelMaintenanceEvent", map[string]any{"orchestrationId": "o-1"})
	if _, ever := w.held("spc", "event"); ever != 1 {
		t.Errorf("%d events were made, want 1", ever)
	}
}

func TestSPCRefusesBadEvents(t *testing.T) {
	t.Parallel()
	w := setup(t)
	for problem, body := range map[string]any{
		"orchestrationId": maintenance("", tenant("i-1", "1")),
		"eventType":       map[string]any{"orchestrationId": "o", "eventType": "2", "tenants": []any{tenant("i-1", "1")}},
		"tenants":         maintenance("o"),
		"instanceId":      maintenance("o", tenant("", "1")),
		"eventState":      maintenance("o", tenant("i-1", "9")),
		"decode":          `{"orchestrationId":`,
	} {
		got := w.must(400, "POST", spcURL+"createMaintenanceEvent", body)
		if !strings.Contains(text(t, got, "error"), problem) {
			t.Errorf("a bad %s is answered with %v", problem, got)
		}
	}
	if _, ever := w.held("spc", "event"); ever != 0 {
		t.Errorf("%d events were made by bad requests", ever)
	}
}
