package broker_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/broker"
)

// An expired instance takes a new global account at once, but not while an update runs that is to change the instance.
func TestAnExpiredInstanceThatMovesDoesNotForgetItsUpdate(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.SubaccountMovement = true })
	b.trial("i")
	b.hold(true)
	update := b.accepted(b.patch("i", parameters(map[string]any{"administrators": []string{"new"}})))
	if a := b.patch("i", expired()); a.status != http.StatusUnprocessableEntity {
		t.Fatalf("expired while it is updated: status %d %s", a.status, a.raw)
	}
	move := map[string]any{"context": map[string]any{"globalaccount_id": "ga-2"}}
	if a := b.patch("i", move); a.status != http.StatusUnprocessableEntity || a.text("error") != "ConcurrencyError" {
		t.Errorf("moved while it is updated: status %d %s", a.status, a.raw)
	}
	b.hold(false)
	b.ended("i", update, "succeeded")
	shown, _ := b.get("i").body["parameters"].(map[string]any)
	equal(t, "administrators", any([]any{"new"}), shown["administrators"])
	if a := b.patch("i", move); a.status != http.StatusOK {
		t.Errorf("moved: status %d %s", a.status, a.raw)
	}
	if n := b.count(`SELECT count(*) FROM broker.runtimes WHERE global_account_id = 'ga-2'`); n != 1 {
		t.Error("the global account is the old one")
	}
}

// A cluster of the customer's own stays when its instance goes, and an administrator's access in it must not.
func TestNoAccessIsLeftInTheCustomersClusterWhenTheInstanceGoes(t *testing.T) {
	t.Parallel()
	b, r := newBindingBench(t, func(c *broker.Config) { c.BindablePlans = []string{"own_cluster"} })
	b.ended("o", b.accepted(b.put("o", ownOrder())), "succeeded")
	b.expect("bind", b.send(http.MethodPut, bindingPath("o", "b"), map[string]any{"service_id": serviceID, "plan_id": own}), 201)
	r.set(func() { r.failing = true })
	deletion := b.accepted(b.delete("o"))
	testkit.Eventually(t, 10*time.Second, "the clean-up", func() bool { return strings.Contains(b.log.String(), "access of a binding not removed") })
	if n := b.count(`SELECT count(*) FROM broker.instances WHERE id = 'o'`); n != 1 {
		t.Fatal("the instance went before the access")
	}
	r.set(func() { r.failing = false })
	b.ended("o", deletion, "succeeded")
	if left := r.has(); len(left) != 0 {
		t.Errorf("left are %v", left)
	}
}
