package console

import (
	"testing"

	"github.com/kyma-project/keb/libs/event"
)

func TestConsole_Batch_RetriesAllThatMatch(t *testing.T) {
	s := thorough(t)
	viewer, operator := s.protect()
	s.script.set("Register", fail("EDP is down"))
	s.start()
	ops := make([]event.Operation, 12)
	for i := range ops {
		ops[i] = provision("azure")
	}
	s.request(ops...)
	for _, op := range ops {
		s.await(op, operator, "failed")
	}
	s.script.set("Register", nil)

	p := openTab(t, s)
	p.forgive("401 (Unauthorized)")
	p.forgive("400 (Bad Request)")
	p.open("/console/operations?state=failed")
	p.logIn(viewer)
	p.shows("#main", "12 operations")
	if eval[bool](p, `document.querySelector('#main').innerText.includes('Act on all')`) {
		t.Error("a viewer can order a batch")
	}
	p.changeUser(operator)
	p.click("button", "Act on all 12 that match…")
	p.shows("dialog .preview", "12 operations match.", "Register (10)")
	p.enter(`dialog input[name="typed"]`, "12")
	p.choose(`dialog select[name="action"]`, "cancel")
	p.until("the number must be typed again", `document.querySelector('dialog input[name="typed"]')?.value === '' && document.querySelector('dialog button[type="submit"]').disabled`)
	p.choose(`dialog select[name="action"]`, "retry")
	p.shows("dialog .preview", "Register (10)")
	p.enter(`dialog input[name="typed"]`, "12")
	p.enter(`dialog input[name="reason"]`, "EDP works again")
	p.click("dialog button", "Order the batch")
	p.shows("#main", "Batch: retry", "12 done, 0 failed, 0 skipped, 0 waiting of 12", "EDP works again", "finished")
	p.until("every result is shown", `[...document.querySelectorAll('tbody tr')].filter((r) => r.innerText.includes('done')).length === 12`)
	for _, op := range ops {
		s.await(op, operator, "succeeded")
	}
	batch := eval[string](p, `location.pathname`)
	p.click("nav a", "Batches")
	p.shows("tbody tr", "finished", "retry", "EDP works again", "olga")
	p.open("/console/operations")
	for _, id := range []string{ops[3].ID, ops[7].ID} {
		p.until("the row is selected", `document.querySelector('tr:has(a[href$="`+id+`"]) input.choose:not(:checked)')?.click() ||
			document.querySelector('tr:has(a[href$="`+id+`"]) input.choose:checked') !== null`)
	}
	p.click("button", "Act on 2 selected…")
	p.shows("dialog .preview", "2 operations match.")
	p.shows("dialog", "id:("+ops[3].ID+" OR "+ops[7].ID+")")
	p.click("dialog button", "Close")
	p.click("nav a", "Actions")
	p.shows("tbody tr", "order_batch")
	p.until("the action leads to its batch", `document.querySelector('tbody a').getAttribute('href') === '`+batch+`'`)
}

func TestConsole_SelectedOperation_LeavesWithList(t *testing.T) {
	s := thorough(t)
	gone := s.failing()
	stays := provision("azure")
	s.request(stays)
	s.awaitWaiting(stays, "", "failing")

	p := openTab(t, s)
	p.open("/console/operations?waiting=failing")
	p.shows("#main", "2 operations")
	eval[any](p, `document.querySelectorAll('input.choose').forEach((e) => e.click())`)
	p.shows("button", "Act on 2 selected…")
	s.act(gone, "cancel")
	eval[any](p, `document.dispatchEvent(new Event('visibilitychange'))`) // loads the list again
	p.click("button", "Act on 1 selected…")
	p.shows("dialog", "waiting=failing, filter=id:("+stays.ID+")")
	p.shows("dialog .preview", "1 operation match")
}
