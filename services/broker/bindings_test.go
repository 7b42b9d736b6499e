package broker_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/broker"
)

// newBindingBench starts a bench with a provisioned instance "i" of plan azure, and the worker runtime.
func newBindingBench(t *testing.T, change func(*broker.Config)) (*bench, *runtimes) {
	t.Helper()
	b := newBench(t, func(c *broker.Config) {
		c.BindingTimeout, c.BindingCleanup, c.BindingGrace = 25*time.Second, 20*time.Millisecond, time.Hour
		if change != nil {
			change(c)
		}
	})
	r := newRuntimes(b)
	b.provisioned("i")
	return b, r
}

func bindingPath(id, binding string) string {
	return "/v2/service_instances/" + id + "/service_bindings/" + binding
}

func bindOrder(parameters map[string]any) map[string]any {
	return map[string]any{"service_id": serviceID, "plan_id": azure, "parameters": parameters}
}

func (b *bench) bind(id, binding string, parameters map[string]any) answer {
	b.t.Helper()
	return b.send(http.MethodPut, bindingPath(id, binding), bindOrder(parameters))
}

func (b *bench) unbind(id, binding string) answer {
	b.t.Helper()
	return b.send(http.MethodDelete, bindingPath(id, binding)+"?service_id="+serviceID+"&plan_id="+azure, nil)
}

func (b *bench) binding(id, binding string) answer {
	b.t.Helper()
	return b.send(http.MethodGet, bindingPath(id, binding), nil)
}

func kubeconfigOf(a answer) string {
	credentials, _ := a.body["credentials"].(map[string]any)
	text, _ := credentials["kubeconfig"].(string)
	return text
}

// noAccess waits until no access and no row of a binding are left.
func (b *bench) noAccess(r *runtimes) {
	b.t.Helper()
	testkit.Eventually(b.t, waitTimeout, "the clean-up of bindings", func() bool {
		return len(r.has()) == 0 && b.count(`SELECT count(*) FROM broker.bindings`) == 0
	})
}

func TestBinding_CreatedAndRemoved_LeavesNoAccess(t *testing.T) {
	t.Parallel()
	b, r := newBindingBench(t, nil)
	made := b.bind("i", "b", map[string]any{"expiration_seconds": 900})
	b.expect("bind", made, 201)
	if !strings.Contains(kubeconfigOf(made), canary) {
		t.Fatalf("no kubeconfig in %s", made.raw)
	}
	want := event.BindRequest{
		Runtime:   event.RuntimeAccess{InstanceID: "i", Account: "ga-1", RuntimeID: "runtime-of-i"},
		BindingID: "b", ExpirationSeconds: 900,
	}
	if got := r.has()["i/b"]; got != want {
		t.Errorf("the worker was asked for %+v", got)
	}
	metadata, _ := made.body["metadata"].(map[string]any)
	expires, err := time.Parse(time.RFC3339, fmt.Sprint(metadata["expires_at"]))
	renew, err2 := time.Parse(time.RFC3339, fmt.Sprint(metadata["renew_before"]))
	if left := time.Until(expires); err != nil || err2 != nil || left < 840*time.Second || left > 900*time.Second || expires.Sub(renew) != 3*time.Minute {
		t.Errorf("metadata is %v", metadata)
	}
	again := b.bind("i", "b", map[string]any{"expiration_seconds": 900})
	b.expect("bind again", again, 200)
	read := b.binding("i", "b")
	b.expect("read", read, 200)
	if kubeconfigOf(again) != kubeconfigOf(made) || kubeconfigOf(read) != kubeconfigOf(made) {
		t.Error("the kubeconfigs differ")
	}
	if got := fmt.Sprint(read.body["parameters"]); got != "map[expiration_seconds:900]" {
		t.Errorf("parameters are %s", got)
	}
	b.expect("bind with the default expiration", b.bind("i", "b", nil), 409)
	b.expect("last operation", b.send(http.MethodGet, bindingPath("i", "b")+"/last_operation", nil), 200)

	rows := b.dumpBindings()
	if !strings.Contains(rows, "v1.k1.") || strings.Contains(rows, canary) || strings.Contains(b.log.String(), canary) {
		t.Error("the kubeconfig is not sealed, or is in the log")
	}
	if !strings.Contains(b.log.String(), "action=bind instance_id=i") {
		t.Error("the audit log does not contain the binding")
	}

	b.expect("unbind", b.unbind("i", "b"), 200)
	if len(r.has()) != 0 {
		t.Error("the access is left")
	}
	b.expect("read after unbind", b.binding("i", "b"), 404)
	b.expect("unbind again", b.unbind("i", "b"), 410)
	b.expect("last operation after unbind", b.send(http.MethodGet, bindingPath("i", "b")+"/last_operation", nil), 410)
	b.expect("last operation of what never was", b.send(http.MethodGet, bindingPath("i", "x")+"/last_operation", nil), 404)
	b.expect("bind once more", b.bind("i", "b", nil), 201)
}

func (b *bench) dumpBindings() string {
	b.t.Helper()
	var rows []string
	require.NoError(b.t, b.db.Select(&rows, `SELECT t::text FROM broker.bindings t`))
	return strings.Join(rows, "\n")
}

// parallel sends concurrent requests for bindings of instance i. It blocks the worker until only held requests are unanswered:
// those for which the broker waits for the worker.
func (b *bench) parallel(r *runtimes, held int, bindings ...string) []answer {
	b.t.Helper()
	release := r.hold()
	answers := make([]answer, len(bindings))
	var sent sync.WaitGroup
	done := make(chan struct{}, len(bindings))
	for n, binding := range bindings {
		sent.Go(func() {
			a, err := b.try(http.MethodPut, bindingPath("i", binding), bindOrder(nil))
			if err != nil {
				b.t.Errorf("request: %v", err)
			}
			answers[n] = a
			done <- struct{}{}
		})
	}
	limit := time.NewTimer(b.cfg.BindingTimeout)
	defer limit.Stop()
	for range len(bindings) - held {
		select {
		case <-done:
		case <-limit.C:
			b.t.Errorf("more than %d requests wait for the worker", held)
			release()
		}
	}
	release()
	sent.Wait()
	return answers
}

func TestBind_ParallelRequestsForOneID_CreateOneAccess(t *testing.T) {
	t.Parallel()
	b, r := newBindingBench(t, nil)
	ids := make([]string, 50)
	for n := range ids {
		ids[n] = "b"
	}
	kubeconfigs, created := map[string]bool{}, 0
	for _, a := range b.parallel(r, 1, ids...) {
		switch a.status {
		case 201:
			created++
			kubeconfigs[kubeconfigOf(a)] = true
		case 200:
			kubeconfigs[kubeconfigOf(a)] = true
		case 422:
		default:
			t.Errorf("status %d %s", a.status, a.raw)
		}
	}
	if created != 1 || len(kubeconfigs) != 1 || r.tokens != 1 {
		t.Errorf("%d answers of 201 with %d kubeconfigs, and %d tokens", created, len(kubeconfigs), r.tokens)
	}
	b.rows("rows", 1, `SELECT count(*) FROM broker.bindings`)
}

func TestBind_ParallelRequests_KeepTheLimit(t *testing.T) {
	t.Parallel()
	b, r := newBindingBench(t, nil)
	ids := make([]string, 11)
	for n := range ids {
		ids[n] = fmt.Sprintf("b-%d", n)
	}
	statuses := map[int]int{}
	for _, a := range b.parallel(r, 10, ids...) {
		statuses[a.status]++
		if a.status == 422 && !strings.Contains(a.text("description"), "10 bindings") {
			t.Errorf("the refusal is %q", a.text("description"))
		}
	}
	if statuses[201] != 10 || statuses[422] != 1 || len(r.has()) != 10 {
		t.Errorf("answers by status: %v, and %d accesses", statuses, len(r.has()))
	}
	// Expired and unfinished bindings do not count.
	b.exec(`UPDATE broker.bindings SET expires_at = now() - interval '1 second' WHERE id = (SELECT min(id) FROM broker.bindings)`)
	b.expect("one more", b.bind("i", "more", nil), 201)
	b.expect("two more", b.bind("i", "more still", nil), 422)
}

func TestBind_UnfinishedBinding_IsTakenOver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		during func(b *bench, r *runtimes) (after func())
		status int
	}{
		"no worker":               {func(_ *bench, r *runtimes) func() { r.stop(); return r.start }, 503},
		"the worker refuses":      {func(_ *bench, r *runtimes) func() { r.set(func() { r.failing = true }); return nil }, 503},
		"its answer is lost":      {func(_ *bench, r *runtimes) func() { r.set(func() { r.lost = true }); return nil }, 503},
		"its work takes too long": {func(_ *bench, r *runtimes) func() { return r.hold() }, 503},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, r := newBindingBench(t, func(c *broker.Config) { c.BindingTimeout = time.Second })
			after := c.during(b, r)
			began := time.Now()
			a := b.bind("i", "b", nil)
			b.expect("bind", a, c.status)
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("the answer took %s", took)
			}
			b.rows("released claims", 1, `SELECT count(*) FROM broker.bindings WHERE claimed_until <= now()`)
			b.expect("read", b.binding("i", "b"), 404)
			b.expect("last operation", b.send(http.MethodGet, bindingPath("i", "b")+"/last_operation", nil), 404)
			if after != nil {
				after()
			}
			r.set(func() { r.failing, r.lost = false, false })
			testkit.Eventually(t, waitTimeout, "a binding with other parameters", func() bool {
				return b.bind("i", "b", map[string]any{"expiration_seconds": 1200}).status == 201
			})
			if a := b.unbind("i", "b"); a.status != 200 && a.status != 503 {
				t.Errorf("unbind: status %d %s", a.status, a.raw)
			}
			b.noAccess(r)
		})
	}
}

func TestCleanUp_UnfinishedBinding_RemovesAccess(t *testing.T) {
	t.Parallel()
	b, r := newBindingBench(t, func(c *broker.Config) { c.BindingTimeout, c.BindingGrace = 500*time.Millisecond, 100*time.Millisecond })
	r.set(func() { r.lost = true })
	b.expect("bind", b.bind("i", "b", nil), 503)
	testkit.Eventually(t, waitTimeout, "the access that the worker makes", func() bool { return r.madeOnce("i/b") })
	// The worker does not answer the removals either, so the broker retries them.
	testkit.Eventually(t, waitTimeout, "a first removal", func() bool { return len(r.has()) == 0 })
	r.set(func() { r.lost = false })
	b.noAccess(r)
	b.expect("unbind what never came about", b.unbind("i", "b"), 410)
}

// A crash between the worker's answer and the update of the row leaves a claim, which expires, and an access.
func TestBinding_BrokerCrashed_IsTakenOverOrRemoved(t *testing.T) {
	t.Parallel()
	b, r := newBindingBench(t, nil)
	crash := func(id string) {
		t.Helper()
		release := r.hold()
		done := make(chan answer, 1)
		go func() {
			a, _ := b.try(http.MethodPut, bindingPath("i", id), bindOrder(nil))
			done <- a
		}()
		testkit.Eventually(t, waitTimeout, "the reservation", func() bool {
			return b.count(`SELECT count(*) FROM broker.bindings WHERE id = $1`, id) == 1
		})
		b.database.Cut()
		release()
		b.expect("bind", <-done, 503)
		b.database.Restore()
		testkit.Eventually(t, waitTimeout, "the database", func() bool { return b.broker.Ready(t.Context()) == nil })
	}
	crash("over")
	b.expect("read", b.binding("i", "over"), 404)
	b.expect("bind under the claim of the dead", b.bind("i", "over", nil), 422)
	b.expect("unbind under the claim of the dead", b.unbind("i", "over"), 422)
	b.exec(`UPDATE broker.bindings SET claimed_until = now()`)
	b.expect("bind", b.bind("i", "over", nil), 201)
	if !r.madeOnce("i/over") {
		t.Error("the access was made twice")
	}
	crash("gone")
	b.exec(`UPDATE broker.bindings SET claimed_until = now(), due_at = now() WHERE id = 'gone'`)
	testkit.Eventually(t, waitTimeout, "the removal of the abandoned binding", func() bool {
		_, left := r.has()["i/gone"]
		return !left && b.count(`SELECT count(*) FROM broker.bindings WHERE id = 'gone'`) == 0
	})
	b.expect("the other binding", b.binding("i", "over"), 200)
}

func TestDeprovision_Bindings_AreRevoked(t *testing.T) {
	t.Parallel()
	b, r := newBindingBench(t, nil)
	b.expect("bind", b.bind("i", "b", nil), 201)
	release := r.hold()
	late := make(chan answer, 1)
	go func() {
		a, _ := b.try(http.MethodPut, bindingPath("i", "late"), bindOrder(nil))
		late <- a
	}()
	testkit.Eventually(t, waitTimeout, "the reservation", func() bool {
		return b.count(`SELECT count(*) FROM broker.bindings WHERE id = 'late'`) == 1
	})
	b.hold(true)
	operation := b.accepted(b.delete("i"))
	b.expect("read", b.binding("i", "b"), 404)
	b.expect("unbind", b.unbind("i", "b"), 410)
	b.expect("bind", b.bind("i", "new", nil), 422)
	if rows := b.dumpBindings(); strings.Contains(rows, "v1.k1.") {
		t.Error("a revoked kubeconfig is kept")
	}
	release()
	b.expect("the binding that was being made", <-late, 422)
	// The access is removed immediately, however long the deprovisioning takes.
	b.noAccess(r)
	b.hold(false)
	b.ended("i", operation, "succeeded")
	b.expect("read after the deprovisioning", b.binding("i", "b"), 404)
	b.expect("unbind after the deprovisioning", b.unbind("i", "b"), 410)
	b.expect("bind after the deprovisioning", b.bind("i", "b", nil), 404)
}

func TestSuspension_Bindings_AreRevoked(t *testing.T) {
	t.Parallel()
	b, r := newBindingBench(t, func(c *broker.Config) { c.BindablePlans = []string{"trial"} })
	b.ended("t", b.accepted(b.put("t", order(trial))), "succeeded")
	bind := map[string]any{"service_id": serviceID, "plan_id": trial}
	b.expect("bind", b.send(http.MethodPut, bindingPath("t", "b"), bind), 201)
	activate := func(active bool) string {
		t.Helper()
		a := b.send(http.MethodPatch, "/v2/service_instances/t?accepts_incomplete=true", map[string]any{
			"service_id": serviceID, "context": map[string]any{"active": active},
		})
		return b.orch.received("t")[len(b.orch.received("t"))-1].ID + a.text("operation")
	}
	activate(false)
	b.expect("read", b.binding("t", "b"), 404)
	b.noAccess(r)
	testkit.Eventually(t, waitTimeout, "the suspension", func() bool {
		a := b.send(http.MethodPut, bindingPath("t", "new"), bind)
		return a.status == 400 && strings.Contains(a.text("description"), "suspended")
	})
	activate(true)
	testkit.Eventually(t, waitTimeout, "a binding of the new runtime", func() bool {
		return b.send(http.MethodPut, bindingPath("t", "b"), bind).status == 201
	})
}

func TestCleanUp_ExpiredBinding_IsRemoved(t *testing.T) {
	t.Parallel()
	b, r := newBindingBench(t, nil)
	b.expect("bind", b.bind("i", "b", nil), 201)
	r.set(func() { r.failing = true })
	b.exec(`UPDATE broker.bindings SET expires_at = now() - interval '1 second'`)
	b.expect("read", b.binding("i", "b"), 404)
	b.expect("bind with the id of an expired binding", b.bind("i", "b", nil), 400)
	b.exec(`UPDATE broker.bindings SET due_at = expires_at`)
	testkit.Eventually(t, waitTimeout, "a removal that fails", func() bool {
		return strings.Contains(b.log.String(), "access of a binding not removed")
	})
	b.expect("bind with the id of a binding that cannot be removed", b.bind("i", "b", nil), 400)
	r.set(func() { r.failing = false })
	b.noAccess(r)
	b.expect("unbind", b.unbind("i", "b"), 410)
	b.expect("bind", b.bind("i", "b", nil), 201)
}

func TestCleanUp_ManyRemovalsFail_OthersGoOn(t *testing.T) {
	t.Parallel()
	b, r := newBindingBench(t, func(c *broker.Config) { c.BindingCleanup = time.Millisecond })
	b.provisioned("j")
	for _, instance := range []string{"i", "j"} {
		for n := range 9 {
			b.expect("bind", b.bind(instance, fmt.Sprintf("b%d", n), nil), 201)
		}
	}
	r.set(func() { r.failing = true })
	b.exec(`UPDATE broker.bindings SET expires_at = now() - interval '1 second', due_at = now()`)
	testkit.Eventually(t, waitTimeout, "a removal that fails", func() bool {
		return strings.Contains(b.log.String(), "access of a binding not removed")
	})
	b.exec(`INSERT INTO broker.removed_bindings (instance_id, id, removed_at) VALUES ('i', 'old', now() - interval '1 year')`)
	testkit.Eventually(t, waitTimeout, "the purge", func() bool { return b.count(`SELECT count(*) FROM broker.removed_bindings WHERE id = 'old'`) == 0 })
}

func TestUnbind_WorkerFails_CleanUpRemovesBinding(t *testing.T) {
	t.Parallel()
	b, r := newBindingBench(t, nil)
	b.expect("bind", b.bind("i", "b", nil), 201)
	r.set(func() { r.failing = true })
	b.expect("unbind", b.unbind("i", "b"), 503)
	b.expect("read", b.binding("i", "b"), 404)
	b.expect("bind", b.bind("i", "b", nil), 422)
	r.set(func() { r.failing = false })
	b.noAccess(r)
	b.expect("unbind", b.unbind("i", "b"), 410)
}

func TestBind_Invalid_IsRejected(t *testing.T) {
	t.Parallel()
	b, r := newBindingBench(t, func(c *broker.Config) { c.RotatablePlans = nil })
	b.ended("t", b.accepted(b.put("t", order(trial))), "succeeded")
	b.fail(event.Provision, true)
	b.ended("failed", b.accepted(b.put("failed", order(azure))), "failed")
	for name, c := range map[string]struct {
		id     string
		body   map[string]any
		status int
		says   string
	}{
		"another plan":       {"i", map[string]any{"service_id": serviceID, "plan_id": aws}, 400, "those of the service instance"},
		"a plan without":     {"t", map[string]any{"service_id": serviceID, "plan_id": trial}, 400, "not bindable"},
		"no instance":        {"x", bindOrder(nil), 404, "no such service instance"},
		"not provisioned":    {"failed", bindOrder(nil), 400, "not provisioned"},
		"out of range":       {"i", bindOrder(map[string]any{"expiration_seconds": 599}), 400, "parameters/expiration_seconds must be at least 600"},
		"unknown parameters": {"i", bindOrder(map[string]any{"expiration": 700}), 400, "parameters/expiration is not a parameter"},
		"no rotation":        {"i", map[string]any{"predecessor_binding_id": "x"}, 400, "cannot be rotated"},
	} {
		b.refused(name, b.send(http.MethodPut, bindingPath(c.id, "b"), c.body), c.status, c.says)
	}
	if n := b.count(`SELECT count(*) FROM broker.bindings`); n != 0 || len(r.has()) != 0 {
		t.Errorf("%d rows and %d accesses are left of refused requests", n, len(r.has()))
	}
}

func TestBind_OwnCluster_SendsItsKubeconfig(t *testing.T) {
	t.Parallel()
	b, r := newBindingBench(t, func(c *broker.Config) { c.BindablePlans = []string{"own_cluster"} })
	b.ended("o", b.accepted(b.put("o", ownOrder())), "succeeded")
	b.expect("bind", b.send(http.MethodPut, bindingPath("o", "b"), map[string]any{"service_id": serviceID, "plan_id": own}), 201)
	if got := r.has()["o/b"].Runtime.Kubeconfig; got != kubeconfig {
		t.Errorf("the worker got %d bytes of kubeconfig, want the customer's", len(got))
	}
}

func TestGetBinding_KubeconfigOfAnother_DoesNotOpen(t *testing.T) {
	t.Parallel()
	b, _ := newBindingBench(t, nil)
	b.expect("bind", b.bind("i", "b", nil), 201)
	b.expect("bind", b.bind("i", "c", nil), 201)
	b.exec(`UPDATE broker.bindings SET sealed = (SELECT sealed FROM broker.bindings WHERE id = 'c') WHERE id = 'b'`)
	a := b.binding("i", "b")
	b.expect("read", a, 500)
	if strings.Contains(a.raw, canary) {
		t.Error("the kubeconfig of another binding is answered")
	}
	var body map[string]any
	if json.Unmarshal([]byte(a.raw), &body) != nil {
		t.Errorf("the answer is %s", a.raw)
	}
}
