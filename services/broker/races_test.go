package broker_test

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/broker"
)

// An update of an expired instance moves it immediately, unless a running update is going to change the instance.
func TestUpdate_MoveOfExpired_KeepsRunningUpdate(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.SubaccountMovement = true })
	b.trial("i")
	b.hold(true)
	update := b.accepted(b.patch("i", parameters(map[string]any{"administrators": []string{"new"}})))
	b.expect("expired while it is updated", b.patch("i", expired()), http.StatusUnprocessableEntity)
	move := map[string]any{"context": map[string]any{"globalaccount_id": "ga-2"}}
	b.busy("moved while it is updated", b.patch("i", move))
	b.hold(false)
	b.ended("i", update, "succeeded")
	shown, _ := b.get("i").body["parameters"].(map[string]any)
	equal(t, "administrators", any([]any{"new"}), shown["administrators"])
	b.expect("moved", b.patch("i", move), http.StatusOK)
	b.rows("runtimes of the new global account", 1, `SELECT count(*) FROM broker.runtimes WHERE global_account_id = 'ga-2'`)
}

// A customer's own cluster still exists after its instance is removed, so the administrator's access must be removed first.
func TestDeprovision_OwnCluster_RemovesAccessFirst(t *testing.T) {
	t.Parallel()
	b, r := newBindingBench(t, func(c *broker.Config) { c.BindablePlans = []string{"own_cluster"} })
	b.ended("o", b.accepted(b.put("o", ownOrder())), "succeeded")
	b.expect("bind", b.send(http.MethodPut, bindingPath("o", "b"), map[string]any{"service_id": serviceID, "plan_id": own}), 201)
	r.set(func() { r.failing = true })
	deletion := b.accepted(b.delete("o"))
	testkit.Eventually(t, waitTimeout, "the clean-up", func() bool { return strings.Contains(b.log.String(), "access of a binding not removed") })
	b.rows("instances before the access is removed", 1, `SELECT count(*) FROM broker.instances WHERE id = 'o'`)
	r.set(func() { r.failing = false })
	b.ended("o", deletion, "succeeded")
	if left := r.has(); len(left) != 0 {
		t.Errorf("left are %v", left)
	}
}

// Platforms, operators and orchestrations send concurrent requests. Every answer must be valid, and at most one update may run per
// instance. At the end the list of runtimes, the bindings and the accesses must agree.
func TestBroker_ConcurrentRequests_EndConsistently(t *testing.T) {
	t.Parallel()
	b, r := newBindingBench(t, func(c *broker.Config) {
		c.TrialLifetime, c.SubaccountMovement, c.BindingGrace = time.Nanosecond, true, 50*time.Millisecond
		c.BindablePlans = []string{"azure", "trial"}
	})
	ids := []string{"i", "t", "u"}
	b.trial("t")
	b.trial("u")
	plans := map[string]string{"i": azure, "t": trial, "u": trial}
	bind := func(id string, n int) (answer, error) {
		body := map[string]any{"service_id": serviceID, "plan_id": plans[id]}
		return b.try(http.MethodPut, bindingPath(id, "b"+strconv.Itoa(n%3)), body)
	}
	unbind := func(id string, n int) (answer, error) {
		return b.try(http.MethodDelete, bindingPath(id, "b"+strconv.Itoa(n%3))+"?service_id="+serviceID+"&plan_id="+plans[id], nil)
	}
	patch := func(id string, members map[string]any) (answer, error) {
		return b.try(http.MethodPatch, "/v2/service_instances/"+id+"?accepts_incomplete=true", change(members))
	}
	asks := []func(id string, n int) (answer, error){
		bind, bind, unbind,
		func(id string, n int) (answer, error) {
			return patch(id, parameters(map[string]any{"administrators": []string{"a" + strconv.Itoa(n%5)}}))
		},
		func(id string, n int) (answer, error) { return patch(id, active(n%2 == 0)) },
		func(id string, n int) (answer, error) {
			return patch(id, map[string]any{"context": map[string]any{"globalaccount_id": "ga-" + strconv.Itoa(n%2)}})
		},
		func(id string, n int) (answer, error) {
			if n%16 != 0 {
				return b.try(http.MethodGet, "/runtimes?state=all&instance_id="+id, nil)
			}
			if n%32 == 0 {
				return b.try(http.MethodPut, "/expire/service_instance/"+id, nil)
			}
			return b.try(http.MethodDelete, "/v2/service_instances/"+id+"?accepts_incomplete=true&service_id="+serviceID+"&plan_id="+plans[id], nil)
		},
		func(id string, n int) (answer, error) {
			return b.try(http.MethodPut, "/v2/service_instances/"+id+"?accepts_incomplete=true", order(plans[id]))
		},
		func(id string, _ int) (answer, error) {
			var a event.UpgradeAnswer
			err := b.bus.AskWithTimeout(t.Context(), waitTimeout, event.AskUpgrade,
				event.UpgradeRequest{Upgrades: []event.UpgradeOrder{upgradeOrder(id, event.UpgradeKyma), upgradeOrder("i", event.UpgradeCluster)}}, &a)
			return answer{}, err
		},
	}
	const callers, rounds = 12, 40
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for n := range rounds {
				at := c*rounds + n
				a, err := asks[(c+n*7)%len(asks)](ids[(c+n/len(asks))%len(ids)], at)
				if err != nil || a.status >= 500 {
					t.Errorf("caller %d, round %d: status %d %s, %v", c, n, a.status, a.raw, err)
				}
				if n := b.count(`SELECT coalesce(max(n), 0) FROM (SELECT count(*) AS n FROM broker.operations
						WHERE type = 'update' AND state IN ('pending', 'in progress') GROUP BY instance_id) AS u`); n > 1 {
					t.Errorf("%d updates of one instance run at once", n)
				}
			}
		})
	}
	all.Wait()
	testkit.Eventually(t, waitTimeout, "rest", func() bool {
		return b.count(`SELECT count(*) FROM broker.operations WHERE state IN ('pending', 'in progress')`) == 0 &&
			b.count(`SELECT count(*) FROM broker.bindings WHERE made_at IS NULL OR revoked_at IS NOT NULL`) == 0
	})
	b.rows("runtimes with a wrong state in the list", 0, `SELECT count(*) FROM broker.runtimes r LEFT JOIN broker.instances i ON i.id = r.instance_id
		WHERE r.state <> broker.runtime_state(r.instance_id, i.deleted_at IS NOT NULL)`)
	b.rows("updates have succeeded and are not in their instances", 0, `SELECT count(*) FROM broker.updates u JOIN broker.operations o ON o.id = u.operation_id WHERE o.state = 'succeeded'`)
	if n := b.count(`SELECT count(*) FROM broker.bindings`); n != len(r.has()) {
		t.Errorf("%d bindings, and %d accesses: %v", n, len(r.has()), r.has())
	}
	for line := range strings.SplitSeq(b.log.String(), "\n") {
		if strings.Contains(line, "deadlock") || strings.Contains(line, "level=ERROR") {
			t.Error(line)
		}
	}
}
