package console

import (
	"testing"
)

func TestConsole_Instance_IsHeldReleasedAndRetried(t *testing.T) {
	t.Parallel()
	thorough(t)
	s := newSystem(t)
	viewer, operator := s.protect()
	s.script.set("Finish", fail("the quota is spent"))
	s.start()
	op := provision("azure")
	s.broker(detail(op))
	s.request(op)
	s.await(op, operator, "failed")

	p := openTab(t, s)
	p.forgive("401 (Unauthorized)")
	p.open("/console/instances/" + op.InstanceID)
	p.enter(`input[name="token"]`, operator)
	p.click("button", "Log in with the token")
	p.shows("h1", "demo "+op.InstanceID)

	p.click("button", "Hold this instance…")
	p.until("the scope is the instance", `document.querySelector('dialog input[name="instance"]').value === '`+op.InstanceID+`'`)
	p.shows("dialog .preview", "0 unfinished operations in the scope now.")
	p.enter(`dialog input[name="reason"]`, "the customer asked for a pause")
	p.click("dialog button", "Create the hold")
	p.shows(".notice", "The hold applies within a second.")
	p.shows(".callout", "Hold: instance "+op.InstanceID+" the customer asked for a pause olga")

	s.script.set("Finish", nil)
	p.click("button", "Retry the provisioning…")
	p.shows("dialog", "Retry this operation?", "Completed stages are not repeated")
	p.click("dialog button", "Retry")
	p.shows(".notice", "The operation runs again.")
	s.awaitWaiting(op, operator, "held")
	p.shows("#main", "Cancel the provisioning…")
	p.until("it cannot be retried now", `![...document.querySelectorAll('button')].some((b) => b.innerText.startsWith('Retry'))`)
	s.accessible(p, "/console/instances/"+op.InstanceID)

	// A viewer sees the hold and cannot act on it.
	p.click("button", "Log out")
	p.enter(`input[name="token"]`, viewer)
	p.click("button", "Log in with the token")
	p.shows(".callout", "the customer asked for a pause")
	p.until("a viewer is offered no action", `document.querySelectorAll('#main .actions, #main .callout button').length === 0`)
	p.click("button", "Log out")
	p.enter(`input[name="token"]`, operator)
	p.click("button", "Log in with the token")

	p.click(".callout button", "Release…")
	p.shows("dialog", "Release this hold?", "1 operation will continue")
	p.click("dialog button", "Release")
	s.await(op, operator, "succeeded")
	p.until("the hold is gone, and an ended operation allows no action", `document.querySelectorAll('#main .callout').length === 0
		&& [...document.querySelectorAll('#main .actions button')].map((b) => b.innerText).join() === 'Hold this instance…'`)
}
