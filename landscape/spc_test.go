package landscape_test

import "testing"

const spcURL = "/spc/"

func TestSPC_CreatedAgain_KeepsOneEvent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, dir, newClock())
	const first = `{"orchestrationId":"o-1","eventType":"1","tenants":[{"instanceId":"i-1","startDateTime":"2026-01-02 03:00:00"}]}`
	const grown = `{"orchestrationId":"o-1","eventType":"1","tenants":[{"instanceId":"i-1","startDateTime":"2026-01-02 03:00:00"},
		{"instanceId":"i-2","startDateTime":"2026-01-02 20:00:00 +0000 UTC","endDateTime":"2026-01-02 22:00:00 +0000 UTC"}]}`
	w.must(201, "POST", spcURL+"createMaintenanceEvent", first)
	w.must(201, "POST", spcURL+"createMaintenanceEvent", grown)
	w.must(200, "PATCH", spcURL+"updateMaintenanceEvent", `{"orchestrationId":"o-1","tenants":[{"instanceId":"i-1","startDateTime":"2026-01-02 03:04:05","eventState":"1"}]}`)
	w.must(200, "PATCH", spcURL+"updateMaintenanceEvent", `{"orchestrationId":"o-1","tenants":[{"instanceId":"i-1","endDateTime":"2026-01-02 03:05:05","eventState":"2"}]}`)
	w.close()

	w = open(t, dir, w.clock)
	got := w.must(200, "GET", "/admin/systems/spc/objects", nil)
	if at(t, got, "totalCount") != 1.0 || text(t, got, "data", 0, "orchestrationId") != "o-1" {
		t.Fatalf("SPC holds %v", got)
	}
	if at(t, got, "data", 0, "tenants", 0, "eventState") != "2" || at(t, got, "data", 0, "tenants", 1, "eventState") != "" {
		t.Errorf("instances are %v", got)
	}
	cancelled := w.must(200, "PATCH", spcURL+"cancelMaintenanceEvent", `{"orchestrationId":"o-1"}`)
	if at(t, cancelled, "tenants", 0, "eventState") != "2" || at(t, cancelled, "tenants", 1, "eventState") != "3" {
		t.Errorf("after the cancellation instances are %v", cancelled)
	}
	w.must(404, "PATCH", spcURL+"cancelMaintenanceEvent", `{"orchestrationId":"o-2"}`)
	if got := w.violations("spc"); len(got) != 0 {
		t.Errorf("violations %q", got)
	}
	w.must(200, "PUT", "/admin/systems/spc", map[string]any{"outage": true})
	w.must(503, "PATCH", spcURL+"cancelMaintenanceEvent", `{"orchestrationId":"o-1"}`)
	if _, ever := w.held("spc", "event"); ever != 1 {
		t.Errorf("%d events were made, want 1", ever)
	}
}

func TestSPC_InvalidRequest_IsViolation(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const tenant = `{"instanceId":"i-1","startDateTime":"2026-01-02 03:00:00"}`
	for _, c := range []struct {
		problem, method, route, body string
		status                       int
	}{
		{"orchestrationId: must have at least", "POST", "create", `{"orchestrationId":"","eventType":"1","tenants":[` + tenant + `]}`, 400},
		{"eventType: must be one of", "POST", "create", `{"orchestrationId":"o","eventType":"2","tenants":[` + tenant + `]}`, 400},
		{"tenants: must have at least", "POST", "create", `{"orchestrationId":"o","eventType":"1","tenants":[]}`, 400},
		{"unknown: eventState", "POST", "create", `{"orchestrationId":"o","eventType":"1","tenants":[{"instanceId":"i","startDateTime":"2026-01-02 03:00:00","eventState":"1"}]}`, 400},
		{"startDateTime: must match", "POST", "create", `{"orchestrationId":"o","eventType":"1","tenants":[{"instanceId":"i","startDateTime":"2026-01-02T03:00:00Z"}]}`, 400},
		{"unknown: eventType", "PATCH", "update", `{"orchestrationId":"o","eventType":"1","tenants":[{"instanceId":"i","startDateTime":"2026-01-02 03:00:00","eventState":"1"}]}`, 400},
		{"unknown: endDateTime", "PATCH", "update", `{"orchestrationId":"o","tenants":[{"instanceId":"i","startDateTime":"2026-01-02 03:00:00","endDateTime":"","eventState":"1"}]}`, 400},
		{"updated before it was created", "PATCH", "update", `{"orchestrationId":"o","tenants":[{"instanceId":"i","startDateTime":"2026-01-02 03:00:00","eventState":"1"}]}`, 404},
		{"unknown: tenants", "PATCH", "cancel", `{"orchestrationId":"o","tenants":[]}`, 400},
		{"body: not one JSON value", "POST", "create", `{"orchestrationId":`, 400},
	} {
		w.violates("spc", c.problem, c.status, c.method, spcURL+c.route+"MaintenanceEvent", c.body)
	}
	if _, ever := w.held("spc", "event"); ever != 0 {
		t.Errorf("%d events were made by bad requests", ever)
	}
}
