package landscape_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const centralEvents = "/cis/events/v1/events/central"

// delete adds events for deleted sub-accounts, one second apart.
func (w *world) delete(subaccounts ...string) {
	w.t.Helper()
	for i, id := range subaccounts {
		w.must(201, "POST", "/admin/systems/cis/events", map[string]any{"subaccountId": id, "creationTime": 1000 * (i + 1)})
	}
}

func TestCIS_DeletedSubaccounts_AreListedInPages(t *testing.T) {
	t.Parallel()
	w := setup(t)
	token := w.clientToken("/cis/oauth/token", "keb")
	var names []string
	for i := range 5 {
		names = append(names, fmt.Sprintf("sub-%d", i))
	}
	w.delete(names...)
	w.must(201, "POST", "/admin/systems/cis/events", map[string]any{"subaccountId": "moved", "eventType": "Subaccount_Update"})

	var told []string
	var pages []any
	for n := range 4 {
		got := w.must(200, "GET", fmt.Sprintf("%s?eventType=Subaccount_Deletion&pageSize=2&pageNum=%d&sortField=creationTime&sortOrder=ASC", centralEvents, n), nil, token)
		if at(t, got, "total") != 5.0 || at(t, got, "totalPages") != 3.0 {
			t.Errorf("page %d has %v of %v", n, got["total"], got["totalPages"])
		}
		pages = append(pages, got["pageNum"])
		for _, e := range at(t, got, "events").([]any) {
			told = append(told, text(t, e, "entityId"))
		}
	}
	if diff := cmp.Diff(names, told); diff != "" {
		t.Errorf("sub-accounts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]any{0.0, 1.0, 2.0, 3.0}, pages); diff != "" {
		t.Errorf("numbers of the pages (-want +got):\n%s", diff)
	}
	newest := w.must(200, "GET", centralEvents+"?eventType=Subaccount_Deletion&pageSize=1&sortOrder=DESC", nil, token)
	if name := text(t, newest, "events", 0, "entityId"); name != "sub-4" {
		t.Errorf("the newest is %s", name)
	}
	if now, ever := w.held("cis", "event"); now != 6 || ever != 6 {
		t.Errorf("CIS holds %d events of %d ever created, want 6 of 6", now, ever)
	}
	w.must(204, "DELETE", "/admin/systems/cis/events", nil)
	if got := w.must(200, "GET", "/admin/systems/cis/events", nil); at(t, got, "totalCount") != 0.0 {
		t.Errorf("after all were dropped there is %v", got)
	}
}

func TestCIS_InvalidRequest_IsViolation(t *testing.T) {
	t.Parallel()
	w := setup(t)
	form := header("Content-Type", "application/x-www-form-urlencoded")
	w.must(401, "POST", "/cis/oauth/token", "grant_type=client_credentials", basic("keb", "wrong"), form)
	w.must(401, "GET", centralEvents, nil)
	w.must(401, "GET", centralEvents, nil, w.clientToken("/director/oauth2/token", "keb"))
	token := w.clientToken("/cis/oauth/token", "keb")
	if got := w.violations("cis"); len(got) > 0 {
		t.Errorf("wrong credentials are violations: %q", got)
	}
	w.must(400, "POST", "/cis/oauth/token", "grant_type=password", basic("keb", "keb"), form)
	const eventsV1, deletions = "/cis/public/rest/v2/events", "?ts=1&type=MASTER_SUBACCOUNT_DELETION"
	for request, want := range map[string]string{
		centralEvents + "?pageSize=0": "pageSize: must be 1 to 150", centralEvents + "?pageSize=151": "pageSize: must be 1 to 150",
		centralEvents + "?pageNum=-1": "pageNum: must be 0", centralEvents + "?pageNum=x": "pageNum: must be 0",
		centralEvents + "?pageNum=": "pageNum: must be 0", centralEvents + "?sortField=entityId": "sortField: must be creationTime",
		centralEvents + "?sortOrder=up": "sortOrder: must be ASC or DESC", centralEvents + "?page=1": "page: unknown",
		eventsV1 + "?ts=1&type=ANY": "type MASTER_SUBACCOUNT_DELETION", eventsV1 + "?type=MASTER_SUBACCOUNT_DELETION": "ts must be 1",
		eventsV1 + deletions + "&page=0": "page: must be 1", eventsV1 + deletions + "&resultsPerPage=1001": "resultsPerPage: must be 1 to 1000",
		eventsV1 + deletions + "&pageNum=1": "pageNum: unknown",
	} {
		w.violates("cis", want, 400, "GET", request, nil, token)
	}
	for body, want := range map[string]string{
		`{}`: "subaccountId", `{"subaccount":"s"}`: "allowed are subaccountId", `{"subaccountId":"s","creationTime":-1}`: "epoch milliseconds",
		`{"subaccountId":"s","eventType":""}`: "eventType",
	} {
		got := w.must(400, "POST", "/admin/systems/cis/events", body)
		if !strings.Contains(text(t, got, "error"), want) {
			t.Errorf("%s is answered with %v, want %q in it", body, got, want)
		}
	}
	w.must(400, "GET", "/admin/systems/avs/events", nil)
	if now, _ := w.held("cis", "event"); now != 0 {
		t.Errorf("bad events left %d", now)
	}
}
