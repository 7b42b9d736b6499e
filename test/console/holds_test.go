package console

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

func TestConsole_Holds_AreCreatedAndReleased(t *testing.T) {
	s := thorough(t)
	viewer, operator := s.protect()
	s.script.set("Register", func(op worker.Operation) (worker.Operation, time.Duration, error) {
		return op, 100 * time.Millisecond, nil
	})
	s.start()
	azure, aws := provision("azure"), provision("aws")
	s.request(azure, aws)
	s.awaitWaiting(azure, operator, "polling")
	s.awaitWaiting(aws, operator, "polling")

	p := openTab(t, s)
	p.forgive("401 (Unauthorized)")
	p.forgive("400 (Bad Request)")
	p.open("/console/holds")
	p.logIn(viewer)
	p.shows("#main", "There are no holds.", "You are a viewer")
	if !eval[bool](p, `[...document.querySelectorAll('#main .actions button')].every((b) => b.disabled)`) {
		t.Error("a viewer can create a hold")
	}
	p.changeUser(operator)

	p.click("button", "Create a hold…")
	p.shows("dialog .preview", "The scope is empty.")
	p.enter(`dialog input[name="plan"]`, "azure")
	p.shows("dialog .preview", "1 unfinished operation in the scope now.")
	p.enter(`dialog input[name="worker"]`, "alpha")
	p.shows("dialog .preview", "0 unfinished operations at such a step now.")
	p.choose(`dialog input[name="worker"]`, "beta")
	p.shows("dialog .preview", "1 unfinished operation at such a step now. Others are held when they reach one.")
	p.enter(`dialog input[name="reason"]`, "beta is being migrated")
	p.choose(`dialog select[name="orders"]`, "reject")
	p.click("dialog button", "Create the hold")
	p.shows(".refusal", "orders reject: the scope may have only instance, globalAccount, plan, region and type")
	p.choose(`dialog select[name="orders"]`, "wait")
	p.click("dialog button", "Create the hold")
	p.shows(".notice", "The hold applies within a second.")
	p.shows("tbody tr", "plan azure, worker beta", "beta is being migrated", "olga", "released")
	p.until("one operation is held", `document.querySelector('tbody td.number').innerText.trim() === '1'`)
	s.awaitWaiting(azure, operator, "held")

	// The number of a hold leads to its own operations.
	if code := s.ask(http.MethodPost, "/holds", operator, `{"scope": {"plan": "aws"}, "reason": "no capacity"}`, nil); code >= 300 {
		t.Fatalf("create a second hold: %d", code)
	}
	s.awaitWaiting(aws, operator, "held")
	p.click(`tbody tr:first-child td.number a`, "1")
	p.until("only its operation is listed", fmt.Sprintf(`location.pathname === '/console/operations' && document.querySelectorAll('tbody tr').length === 1 && document.querySelector('tbody th a').title === '%s'`, azure.ID))

	p.open("/console/operations/" + azure.ID)
	p.shows(".callout", "Waiting: hold")
	p.click(".callout a", eval[string](p, `document.querySelector('.callout a[href="/console/holds"]').innerText.trim()`))
	p.click("tr:first-child button", "Release…")
	p.shows("dialog", "Release this hold?", "1 operation will continue")
	p.click("dialog button", "Release")
	p.until("only the other hold is left", `document.querySelectorAll('tbody tr').length === 1`)
	s.awaitWaiting(azure, operator, "polling")
	p.click("nav a", "Actions")
	p.shows("tbody tr", "release_hold", "create_hold")
}
