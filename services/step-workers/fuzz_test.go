package stepworkers_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

// For any answer of an external system, the step returns a valid result without secrets.
func FuzzAnswersOfExternalSystems(f *testing.F) {
	w := newWorld(f)
	w.seedOverrides("2.21.0")
	provisioned := w.all(provisioning, w.order())
	operation := func(step string) workertest.Operation {
		switch {
		case slices.Contains(deprovisioning, step):
			return deprovision(provisioned)
		case slices.Contains(provisioning, step):
			return provisioned
		case slices.Contains(upgradingKyma, step):
			return w.upgrade(provisioned, event.UpgradeKyma, "k-1")
		case slices.Contains(upgradingCluster, step):
			return w.upgrade(provisioned, event.UpgradeCluster, "c-1")
		default:
			return w.update(provisioned, "u-1")
		}
	}
	bodies := []string{
		``, `{}`, `[]`, `null`, `{"id":1}`, `[{"id":1,"name":"x","tags":null}]`, `{"access_token":1}`, `{"data":null,"errors":[{"message":"$BODY"}]}`,
		`{"data":{"result":null}}`, `{"apiVersion":"v1","kind":"List","items":[{}]}`, `{"items":[{"metadata":{"name":1}}]}`, `{"status":"$BODY"}`,
		`{"clusters":[{"status":7}]}`, `{"data":{"result":{"state":"SUCCEEDED","kubeconfig":"$BODY"}}}`,
	}
	for i := range talks {
		f.Add(uint8(i), uint16(http.StatusOK), bodies[i%len(bodies)])
	}
	f.Fuzz(func(t *testing.T, n uint8, status uint16, body string) {
		talk := talks[int(n)%len(talks)]
		w.t, w.texts = t, nil
		w.build(w.url)
		op := operation(talk.step)
		r := w.during(fault{prefix: talk.prefix, status: 200 + int(status)%400, body: body}, talk.step, op)
		switch r.Outcome {
		case retry:
			if r.RetryAfter <= 0 {
				t.Errorf("%s: retry after %s", talk.step, r.RetryAfter)
			}
		case failed:
			if r.Error == nil || r.Error.Component == "" || r.Error.Message == "" {
				t.Errorf("%s: failed with %+v", talk.step, r.Error)
			}
		case succeeded, skipped, event.OutcomeNotCompleted, event.OutcomeStageLost:
		default:
			t.Errorf("%s: outcome %q", talk.step, r.Outcome)
		}
		if r.Error != nil && strings.Contains(r.Error.Message, "the step panicked") {
			t.Errorf("%s: %s", talk.step, r.Error.Message)
		}
		for _, text := range w.texts[1:] { // the first texts are the details
			if len(text) > 4<<10 || strings.ContainsAny(text, "\x00\x1b") {
				t.Errorf("%s outputs %q", talk.step, text)
			}
		}
		if !strings.Contains(body, canary) {
			w.noSecrets()
		}
	})
}
