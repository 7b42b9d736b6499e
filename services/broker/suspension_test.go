package broker_test

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/broker"
)

func active(on bool) map[string]any { return map[string]any{"context": map[string]any{"active": on}} }

func expired() map[string]any {
	return map[string]any{"context": map[string]any{"active": false}, "parameters": map[string]any{"expired": true}}
}

func (b *bench) trial(id string) {
	b.t.Helper()
	b.ended(id, b.accepted(b.put(id, order(trial))), "succeeded")
}

// suspended suspends an instance and returns the operation.
func (b *bench) suspended(id string) string {
	b.t.Helper()
	b.trial(id)
	operation := b.accepted(b.patch(id, active(false)))
	b.ended(id, operation, "succeeded")
	return operation
}

func (b *bench) status(id string) any {
	b.t.Helper()
	return b.labels(id)["Status"]
}

func TestSuspension_Trial_KeepsInstance(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.trial("i")
	first := b.newest("i")
	equal(t, "status", nil, b.status("i"))
	b.hold(true)
	operation := b.accepted(b.patch("i", active(false)))
	equal(t, "status", any("being suspended"), b.status("i"))
	equal(t, "again", operation, b.accepted(b.patch("i", active(false))))
	equal(t, "expired meanwhile", operation, b.accepted(b.patch("i", expired())))
	b.expect("update of an expired instance", b.patch("i", parameters(map[string]any{"administrators": []string{"a"}})), 200)
	b.hold(false)
	b.ended("i", operation, "succeeded")
	got := b.newest("i")
	if got.Type != event.Deprovision || !got.Temporary || got.Purpose != event.PurposeSuspension || got.Runtime != first.Runtime {
		t.Errorf("requested was %+v", got)
	}
	equal(t, "status", any("suspended"), b.status("i"))
	if last := b.last("i", ""); last.text("description") != "suspension succeeded" {
		t.Errorf("last operation %s", last.raw)
	}
	b.withoutOperation("again afterwards", b.patch("i", active(false)))
	equal(t, "requests", 2, b.orch.requests("i"))
	// A repeated order of the platform is still the same order.
	b.expect("PUT", b.put("i", order(trial)), 200)
}

func TestUnsuspension_Trial_KeepsShootName(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.suspended("i")
	first := b.orch.received("i")[0]
	if a := b.patch("i", map[string]any{
		"context": map[string]any{"active": false}, "parameters": map[string]any{"administrators": []string{"a@example.org"}},
	}); a.status != 200 || a.text("operation") != "" {
		t.Errorf("update of a suspended instance: status %d %s", a.status, a.raw)
	}
	b.hold(true)
	operation := b.accepted(b.patch("i", active(true)))
	equal(t, "again", operation, b.accepted(b.patch("i", active(true))))
	equal(t, "status", any("being unsuspended"), b.status("i"))
	b.busy("update meanwhile", b.patch("i", parameters(map[string]any{"administrators": []string{"b"}})))
	b.hold(false)
	b.ended("i", operation, "succeeded")
	got := b.newest("i")
	if got.Type != event.Provision || got.Temporary || got.Purpose != event.PurposeUnsuspension {
		t.Errorf("requested was %+v", got)
	}
	equal(t, "runtime", first.Runtime, got.Runtime)
	equal(t, "parameters", any([]any{"a@example.org"}), members(t, got.Parameters)["administrators"])
	equal(t, "status", nil, b.status("i"))
	// active true for an active instance changes nothing, and the rest of the update applies.
	change := parameters(map[string]any{"administrators": []string{"c@example.org"}})
	change["context"] = map[string]any{"active": true}
	b.updated("i", change)
}

func TestSuspension_OtherPlan_IsIgnored(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.withoutOperation("PATCH", b.patch("i", active(false)))
	equal(t, "requests", 1, b.orch.requests("i"))
}

func TestSuspension_PlanChangesMeanwhile_CanBeResumed(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.PlanChanges = map[string]string{"trial": "azure"} })
	b.trial("i")
	b.ended("i", b.accepted(b.patch("i", active(false))), "succeeded")
	b.withoutOperation("plan change", b.patch("i", map[string]any{"plan_id": azure}))
	b.withoutOperation("suspension of another plan", b.patch("i", active(false)))
	b.ended("i", b.accepted(b.patch("i", active(true))), "succeeded")
	equal(t, "status", nil, b.status("i"))
}

func TestSuspension_Failed_CanBeRepeated(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.trial("i")
	b.fail(event.Deprovision, true)
	first := b.accepted(b.patch("i", active(false)))
	b.ended("i", first, "failed")
	equal(t, "status", any("suspension failed"), b.status("i"))
	b.expect("update", b.patch("i", parameters(map[string]any{"administrators": []string{"a"}})), 422)
	b.fail(event.Deprovision, false)
	second := b.accepted(b.patch("i", active(false)))
	if second == first {
		t.Error("a failed suspension is repeated by nothing")
	}
	b.ended("i", second, "succeeded")

	b.fail(event.Provision, true)
	b.ended("i", b.accepted(b.patch("i", active(true))), "failed")
	equal(t, "status", any("unsuspension failed"), b.status("i"))
	b.fail(event.Provision, false)
	b.ended("i", b.accepted(b.patch("i", active(true))), "succeeded")

	// After a failed suspension, the runtime can be requested again.
	b.fail(event.Deprovision, true)
	b.ended("i", b.accepted(b.patch("i", active(false))), "failed")
	b.fail(event.Deprovision, false)
	b.ended("i", b.accepted(b.patch("i", active(true))), "succeeded")
	equal(t, "status", nil, b.status("i"))
}

func TestSuspension_RequestsAlternate_LastOneWins(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.trial("i")
	b.hold(true)
	suspension := b.accepted(b.patch("i", active(false)))
	back := b.accepted(b.patch("i", active(true)))
	again := b.accepted(b.patch("i", active(false)))
	if suspension == back || back == again || suspension == again {
		t.Errorf("operations %s, %s, %s", suspension, back, again)
	}
	if last := b.last("i", back); last.text("state") != "failed" || !strings.Contains(last.text("description"), "removal of the runtime") {
		t.Errorf("superseded: %s", last.raw)
	}
	b.hold(false)
	b.ended("i", suspension, "succeeded")
	b.ended("i", again, "succeeded")
	equal(t, "status", any("suspended"), b.status("i"))
}

func TestSuspension_OtherOperationRuns_Returns422(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hold(true)
	provisioning := b.accepted(b.put("i", order(trial)))
	b.busy("while provisioning", b.patch("i", active(false)))
	b.hold(false)
	b.ended("i", provisioning, "succeeded")
	b.hold(true)
	update := b.accepted(b.patch("i", parameters(map[string]any{"administrators": []string{"a"}})))
	b.busy("while updating", b.patch("i", active(false)))
	b.hold(false)
	b.ended("i", update, "succeeded")
}

func TestDeprovision_Suspended_RemovesInstance(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.suspended("i")
	b.ended("i", b.accepted(b.delete("i")), "succeeded")
	if got := b.newest("i"); got.Type != event.Deprovision || got.Temporary {
		t.Errorf("requested was %+v", got)
	}
	b.expect("GET", b.get("i"), 404)
	b.expect("DELETE", b.delete("i"), 410)
	b.expect("PATCH", b.patch("i", active(true)), 404)
	b.trial("i")

	// The same applies while the suspension runs.
	b.hold(true)
	suspension := b.accepted(b.patch("i", active(false)))
	deletion := b.accepted(b.delete("i"))
	b.busy("PATCH", b.patch("i", active(true)))
	if suspension == deletion {
		t.Error("the deletion is only a suspension")
	}
	b.hold(false)
	b.ended("i", deletion, "succeeded")
	b.rows("instances are left", 0, `SELECT count(*) FROM broker.instances`)
}

func (b *bench) expire(id string) answer {
	b.t.Helper()
	return b.send(http.MethodPut, "/expire/service_instance/"+id, nil)
}

// aged shifts the creation time of instances into the past.
func (b *bench) aged(id, by string) {
	b.t.Helper()
	b.exec(`UPDATE broker.instances SET created_at = created_at - $2::interval WHERE id = $1`, id, by)
}

func TestExpire_OldInstance_IsSuspended(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.TrialDocumentation = "https://docs.example.org/trial" })
	b.trial("t")
	b.provisioned("i")
	b.ended("f", b.accepted(b.put("f", order(free))), "succeeded")
	for _, tc := range []struct {
		id     string
		status int
		want   string
	}{
		{"t", 400, "not old enough"},
		{"f", 400, "not old enough"},
		{"i", 400, "instances of plan azure do not expire"},
		{"x", 404, "no such service instance"},
		{"a%00b", 404, "no such service instance"},
	} {
		b.refused(tc.id, b.expire(tc.id), tc.status, tc.want)
	}

	equal(t, "label", any("Your cluster expires in 14 days."), b.labels("t")["Trial expiration details"])
	equal(t, "label", any("https://docs.example.org/trial"), b.labels("t")["Trial documentation"])
	equal(t, "label of free", nil, b.labels("f")["Trial expiration details"])
	b.aged("t", "13 days")
	equal(t, "label", any("Your cluster expires tomorrow."), b.labels("t")["Trial expiration details"])
	b.aged("t", "30 hours")
	equal(t, "label", any("Your cluster expires today."), b.labels("t")["Trial expiration details"])
	b.aged("f", "31 days")
	for _, id := range []string{"t", "f"} {
		operation := b.accepted(b.expire(id))
		b.ended(id, operation, "succeeded")
		if got := b.newest(id); got.ID != operation || !got.Temporary || got.Purpose != event.PurposeExpiry {
			t.Errorf("requested was %+v", got)
		}
		equal(t, "status", any("suspended"), b.status(id))
		equal(t, "again", operation, b.accepted(b.expire(id)))
		b.withoutOperation("unsuspension of "+id, b.patch(id, active(true)))
	}
	if label := b.labels("t")["Trial expiration details"]; !strings.Contains(label.(string), "has expired") {
		t.Errorf("label %v", label)
	}
	equal(t, "requests", 2, b.orch.requests("t"))
	b.ended("t", b.accepted(b.delete("t")), "succeeded")
	b.expect("deleted", b.expire("t"), 404)
}

func TestExpire_ProvisioningFailed_InstanceStaysFailed(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.fail(event.Provision, true)
	b.ended("i", b.accepted(b.put("i", order(trial))), "failed")
	b.fail(event.Provision, false)
	b.aged("i", "15 days")
	for _, when := range []string{"before", "after"} {
		b.expect("GET "+when, b.send(http.MethodGet, "/v2/service_instances/i", nil), 404)
		b.refused("PUT "+when, b.put("i", order(trial)), 409, "deprovision it first")
		b.refused("PATCH "+when, b.patch("i", active(true)), 422, "only deprovisioned")
		b.ended("i", b.accepted(b.expire("i")), "succeeded")
	}
	equal(t, "requests", 2, b.orch.requests("i"))
	b.ended("i", b.accepted(b.delete("i")), "succeeded")
}

func TestExpire_OperationRuns_IsRecorded(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.trial("i")
	b.hold(true)
	update := b.accepted(b.patch("i", parameters(map[string]any{"administrators": []string{"a"}})))
	b.busy("PATCH", b.patch("i", expired()))
	b.busy("PUT", b.expire("i"))
	var at time.Time
	require.NoError(t, b.db.Get(&at, `SELECT expired_at FROM broker.instances`))
	b.hold(false)
	b.ended("i", update, "succeeded")
	b.ended("i", b.accepted(b.patch("i", expired())), "succeeded")
	b.rows("instances with the first time of expiry", 1, `SELECT count(*) FROM broker.instances WHERE expired_at = $1`, at)
	b.rows("expired runtimes in the list", 1, `SELECT count(*) FROM broker.runtimes WHERE expired_at = $1 AND state = 'suspended'`, at)
}

func TestOrder_SecondTrial_IsRejected(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.SingleTrial = true })
	b.provisioned("other")
	answers := make([]answer, 8)
	var all sync.WaitGroup
	for n := range answers {
		all.Go(func() {
			a, err := b.try(http.MethodPut, "/v2/service_instances/t"+strconv.Itoa(n)+"?accepts_incomplete=true", order(trial))
			if err != nil {
				a.raw = err.Error()
			}
			answers[n] = a
		})
	}
	all.Wait()
	accepted := 0
	for _, a := range answers {
		switch {
		case a.status == 202:
			accepted++
		case a.status != 422 || !strings.Contains(a.text("description"), "only one is allowed"):
			t.Errorf("status %d %s", a.status, a.raw)
		}
	}
	if accepted != 1 {
		t.Errorf("%d trials were accepted", accepted)
	}
	var id string
	require.NoError(t, b.db.Get(&id, `SELECT id FROM broker.instances WHERE plan_name = 'trial'`))
	if a := b.put(id, order(trial)); a.status != 200 && a.status != 202 {
		t.Errorf("the same trial: status %d %s", a.status, a.raw)
	}
	elsewhere := order(trial)
	elsewhere["context"] = contextOf(map[string]any{"globalaccount_id": "ga-2"})["context"]
	b.accepted(b.put("y", elsewhere))
	b.ended(id, b.accepted(b.delete(id)), "succeeded")
	b.trial("z")
}

func TestMetadata_KubeconfigURLAndUserAgent_AreSent(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.PublicURL = "https://keb.example.org/" })
	a := b.put("i", order(azure))
	m, _ := a.body["metadata"].(map[string]any)
	equal(t, "labels", any(map[string]any{"Name": "sample", "KubeconfigURL": "https://keb.example.org/kubeconfig/i"}), m["labels"])
	b.ended("i", b.accepted(a), "succeeded")
	path := "/v2/service_instances/i?accepts_incomplete=true&service_id=" + serviceID + "&plan_id=" + azure
	b.ended("i", b.accepted(b.send(http.MethodDelete, path, nil, "User-Agent", "accountcleanup-job")), "succeeded")
	testkit.Eventually(t, waitTimeout, "request", func() bool { return b.newest("i").UserAgent == "accountcleanup-job" })
}
