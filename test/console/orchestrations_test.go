package console

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
)

// runtimes answers for a broker with provisioned runtimes, and requests their upgrades once per operation ID.
func (s *system) runtimes(n int) {
	s.t.Helper()
	files := maps.Clone(processes)
	s.Orchestrator.Processes = files
	files["upgradeKyma.yaml"] = &fstest.MapFile{Data: []byte(`
operation: upgradeKyma
timeout: 1h
stages:
  - name: upgrade
    steps:
      - {name: Prepare, worker: alpha, retry: {every: 100ms, timeout: 10m}}
`)}
	var instances []event.InstanceSummary
	for i := range n {
		instances = append(instances, event.InstanceSummary{
			InstanceID: fmt.Sprintf("i-%05d", i), Plan: event.Plan{ID: "azure", Name: "azure"}, GlobalAccountID: "ga-1", SubaccountID: "sa-1",
			Runtime: event.Runtime{ShootName: fmt.Sprintf("c-%05d", i), Region: "westeurope"}, State: event.InstanceProvisioned, KymaVersion: "2.20.1",
		})
	}
	var mu sync.Mutex
	known := map[string]bool{}
	for subject, answer := range map[string]func(data []byte) (any, error){
		event.AskInstances: func([]byte) (any, error) {
			return event.InstancesAnswer{Instances: instances, Plans: []string{"azure"}, Versions: true}, nil
		},
		event.AskUpgrade: func(data []byte) (any, error) {
			var request event.UpgradeRequest
			if err := json.Unmarshal(data, &request); err != nil {
				return nil, err
			}
			mu.Lock()
			defer mu.Unlock()
			var answer event.UpgradeAnswer
			for _, u := range request.Upgrades {
				recorded := event.UpgradeRecorded{OperationID: u.OperationID}
				if request.ConfirmOnly && !known[u.OperationID] {
					recorded.Refused = "the upgrade is not recorded"
				}
				answer.Upgrades = append(answer.Upgrades, recorded)
				if known[u.OperationID] || request.ConfirmOnly {
					continue
				}
				known[u.OperationID] = true
				op := provision("azure")
				op.ID, op.Type, op.InstanceID, op.Upgrade = u.OperationID, u.Type, u.InstanceID, &u.Upgrade
				s.request(op)
			}
			return answer, nil
		},
	} {
		stop, err := s.Bus.Answer(subject, "broker", func(_ context.Context, data []byte) (any, error) { return answer(data) })
		require.NoError(s.t, err)
		s.t.Cleanup(stop)
	}
}

// An operator orders an upgrade with a canary, approves it, sees it pause after failures, repeats those and resumes.
func TestConsole_Orchestration_CanaryApprovalAndFailures(t *testing.T) {
	s := thorough(t)
	s.runtimes(9)
	viewer, operator := s.protect()
	s.start()
	p := openTab(t, s)
	p.forgive("401 (Unauthorized)")
	p.forgive("400 (Bad Request)")
	p.open("/console/orchestrations")
	p.logIn(operator)
	p.click("button", "Order an upgrade…")
	p.shows("dialog", "Type all to continue")
	if !eval[bool](p, `document.querySelector('dialog button[type="submit"]').disabled`) {
		t.Error("all runtimes can be upgraded without a confirmation")
	}
	p.enter(`dialog input[name="kymaVersion"]`, "2.20")
	p.enter(`dialog input[name="version"]`, "2.21.0")
	eval[any](p, `document.querySelector('dialog input[name="workers"]').select()`)
	p.enter(`dialog input[name="workers"]`, "4")
	p.enter(`dialog input[name="canary"]`, "3")
	p.enter(`dialog input[name="maxFailures"]`, "none")
	p.click("dialog button", "Order the upgrade")
	p.shows("dialog", `strategy.maxFailures: "none": must be a number`)
	eval[any](p, `document.querySelector('dialog input[name="maxFailures"]').select()`)
	p.enter(`dialog input[name="maxFailures"]`, "1")
	p.click("dialog button", "Order the upgrade")
	p.shows("#main", "Kyma upgrade to 2.21.0", "waiting for approval", "The canary has ended", "3 of 9 operations ended", "3 runtimes, then approval", "Kyma 2.20")
	p.until("the canary is marked", `[...document.querySelectorAll('tbody tr')].filter((r) => r.innerText.includes('canary')).length === 3`)
	at := eval[string](p, `location.pathname`)
	s.accessible(p, at)

	s.script.set("Prepare", fail("the reconciler answered 503"))
	p.click("button", "Approve…")
	p.shows("dialog", "6 operations will be started, 4 in parallel")
	p.click("dialog button", "Approve")
	p.shows("#main", "paused by failures", "Too many operations failed", "maxFailures allows 1", "Failures by error", "the reconciler answered 503")
	s.script.set("Prepare", nil)
	p.click("button", "Retry failed…")
	p.click("dialog button", "Retry")
	p.until("the failed operations wait to be repeated", `!document.querySelector('#main').innerText.includes('Failures by error')`)
	p.click("button", "Resume…")
	p.click("dialog button", "Resume")
	p.shows("#main", "9 succeeded", "9 of 9 operations ended")
	p.click("nav a", "Orchestrations")
	p.shows("tbody tr", "succeeded", "Kyma upgrade", "2.21.0", "9 / 9", "Kyma 2.20")
	p.click("nav a", "Actions")
	p.shows("tbody tr", "resume_orchestration")
	p.changeUser(viewer)
	p.open("/console/orchestrations")
	p.until("a viewer cannot order", `[...document.querySelectorAll('button')].some((b) => b.innerText.startsWith('Order') && b.disabled)`)
}

func TestConsole_DryRun_IsMarked(t *testing.T) {
	s := thorough(t)
	s.runtimes(1)
	s.start()
	c, err := operator.New("http://"+s.addr, "")
	require.NoError(t, err)
	id, _, err := c.Upgrade(t.Context(), "kyma", &operator.Upgrade{
		Targets:  operator.Targets{Include: []operator.Target{{Target: "all"}}},
		Strategy: operator.Strategy{Parallel: operator.Parallel{Workers: 1}},
		Kyma:     &operator.KymaVersion{Version: "2.21.0"}, DryRun: true,
	})
	require.NoError(t, err)
	p := openTab(t, s)
	p.open("/console/orchestrations/" + id)
	p.shows("#main", "dry run", "1 of 1 operation ended")
	p.until("its operation has a page", `document.querySelector('tbody th a') !== null`)
	p.do(chromedp.Click(chromedp.CSS(`tbody th a`)))
	p.shows("h1", "Kyma upgrade (dry run)")
	p.shows("section[aria-labelledby=others]", "Kyma upgrade (this one) dry run")
	p.open("/console/instances/i-00000")
	p.shows("tbody", "Kyma upgrade dry run")
	p.until("its orchestration is marked", `[...document.querySelectorAll('section')].some((s) => /^Orchestrations/.test(s.innerText) && /dry run/.test(s.innerText))`)
}

// accessible checks the current view, light and wide as well as dark and narrow.
func (s *system) accessible(p *tab, view string) {
	s.t.Helper()
	for _, width := range []int64{1440, 390} {
		p.do(chromedp.EmulateViewport(width, 900))
		if found := eval[[]string](p, checks); len(found) > 0 {
			s.t.Errorf("%s, %d pixels wide:\n  %s", view, width, strings.Join(found, "\n  "))
		}
	}
	p.do(chromedp.EmulateViewport(1280, 900))
}
