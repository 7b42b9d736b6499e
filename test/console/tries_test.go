package console

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/worker"
)

func TestConsole_Try_ShowsInputAndResult(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	tries := 0
	s.script.set("Register", func(op worker.Operation) (worker.Operation, time.Duration, error) {
		tries++
		if err := op.SaveDetails(map[string]any{"tenant": tries, "password": "secret-canary"}); err != nil {
			return op, 0, err
		}
		if tries == 1 {
			return worker.Wait(op, time.Millisecond, "being registered")
		}
		return op, 0, nil
	})
	s.start()
	op := provision("azure")
	op.Parameters = json.RawMessage(`{"name":"demo","machineType":"m5"}`)
	s.request(op)
	s.await(op, "", "succeeded")

	p := openTab(t, s)
	p.open("/console/operations/" + op.ID)
	p.until("the tries of the step are shown", `[...document.querySelectorAll('.history tbody tr')].filter((r) => r.innerText.includes('Register')).length === 2`)
	// From the history: the last try read what the first one had saved.
	eval[bool](p, `document.querySelector('button[aria-label="More about Register, succeeded"]').click(), true`)
	p.click(".more-of button", "Input and result")
	p.shows("dialog h2", "Input and result of Register")
	p.shows("dialog", "m5", "execution", `"tenant": 1`, "succeeded", `"tenant": 2`)
	p.until("secrets are masked", `/\[redacted\]/.test(document.querySelector('dialog').innerText) && !/canary/.test(document.body.innerText)`)
	p.click("dialog button", "Close")
	p.until("the dialog is closed", `document.querySelector('dialog') === null`)
	require.Equal(t, "Input and result", p.focused())

	// From the timeline: the details of the selected step.
	eval[bool](p, `document.querySelector('.map-step[title^="Register"]').click(), true`)
	p.shows(".step-details h3", "Register")
	eval[bool](p, `[...document.querySelectorAll('.step-details .tries button')].at(-1).click(), true`)
	p.shows("dialog", "polling", "being registered", "Next try after", `"tenant": 1`)
}

func TestConsole_RetryFromStep_LeavesOutTheStepsBefore(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.script.set("Register", fail("EDP is down"))
	s.start()
	op := provision("azure")
	s.request(op)
	s.await(op, "", "failed")
	s.script.set("Register", nil)

	p := openTab(t, s)
	p.open("/console/operations/" + op.ID)
	p.click("button", "Retry…")
	p.shows("dialog", "steps run again")
	p.choose(`dialog select[name="step"]`, "Register")
	p.shows("dialog", "The steps before Register stay as they are.", "1 step runs again", "What the first of them is sent")
	p.click("dialog button", "Retry")
	p.shows(".state-line", "succeeded")
	p.shows(".history", "retried by", "from the step Register of the stage create")
	require.Equal(t, 1, eval[int](p, `[...document.querySelectorAll('.history tbody tr')].filter((r) => r.innerText.includes('Prepare')).length`))
}
