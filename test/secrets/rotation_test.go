package secrets

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

// customers is the number of customers that order, bind, change and remove runtimes at the same time, without a pause.
const customers = 6

// doubled are the workers with two replicas: those that use the stage memory and credentials most.
var doubled = []string{"worker-btp", "worker-provisioner", "worker-reconciler"}

// load contains the results of the customers.
type load struct {
	w    *world
	stop context.CancelFunc
	done sync.WaitGroup

	mu                 sync.Mutex
	accepted, ended    int
	failed             []string
	repeated, bindings int
	slowest            time.Duration
	acceptedBy         map[string]int
}

// startLoad starts the customers.
func (w *world) startLoad() *load {
	ctx, cancel := context.WithCancel(w.t.Context())
	l := &load{w: w, stop: cancel, acceptedBy: map[string]int{}}
	for n := range customers {
		l.done.Go(func() {
			for round := 0; ctx.Err() == nil; round++ {
				l.live(n, round)
			}
		})
	}
	return l
}

// end waits until the customers have completed their current operations.
func (l *load) end() {
	l.stop()
	l.done.Wait()
}

// live runs one runtime from its order to its removal.
func (l *load) live(n, round int) {
	o := harness.Azure()
	o.ClientID, o.ClientSecret = fmt.Sprintf("client-%d-%d", n, round), fmt.Sprintf("CANARY-%d-%d", n, round)
	if !l.do("provision", o, func(p *osbclient.Client) (*osbclient.Answer, error) {
		return p.Provision(l.w.t.Context(), o.InstanceID, o.Body())
	}) {
		return
	}
	bind := osbclient.Bind{ServiceID: harness.ServiceID, PlanID: o.PlanID}
	var first, second *osbclient.Binding
	if l.ask("bind", func(p *osbclient.Client) (err error) {
		first, err = p.Bind(l.w.t.Context(), o.InstanceID, "b", bind)
		return err
	}) {
		o.ClientSecret += "-second"
		l.do("update", o, func(p *osbclient.Client) (*osbclient.Answer, error) {
			return p.Update(l.w.t.Context(), o.InstanceID, osbclient.Change{
				ServiceID: harness.ServiceID, Context: o.Body().Context, Parameters: map[string]any{"machineType": "Standard_D8_v3"},
			})
		})
		if l.ask("read the binding", func(p *osbclient.Client) (err error) {
			second, err = p.GetBinding(l.w.t.Context(), o.InstanceID, "b")
			return err
		}) && string(first.Credentials) != string(second.Credentials) {
			l.fail("the binding differs from its creation")
		}
		l.mu.Lock()
		l.bindings++
		l.mu.Unlock()
	}
	l.do("deprovision", o, func(p *osbclient.Client) (*osbclient.Answer, error) {
		return p.Deprovision(l.w.t.Context(), o.InstanceID, harness.ServiceID, o.PlanID)
	})
}

func (l *load) fail(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = append(l.failed, text)
}

// ask repeats a request at alternating brokers, like a platform behind a load balancer.
func (l *load) ask(what string, f func(*osbclient.Client) error) bool {
	addresses := l.w.brokers
	var err error
	for end, try := time.Now().Add(limit), 0; time.Now().Before(end); try++ {
		var p *osbclient.Client
		if p, err = osbclient.New(osbclient.Config{
			BaseURL: "http://" + addresses[try%len(addresses)] + "/oauth/cf-eu10", User: "keb", Password: l.w.secrets.Read("cli/osb-password"),
			PollEvery: 20 * time.Millisecond, PollAtMost: 100 * time.Millisecond,
		}, l.w.HTTP); err != nil {
			break
		}
		if err = f(p); err == nil {
			return true
		}
		if status := harness.StatusOf(err); status != 0 && status != http.StatusServiceUnavailable && status != http.StatusUnprocessableEntity {
			break
		}
		l.mu.Lock()
		l.repeated++
		l.mu.Unlock()
		select {
		case <-l.w.t.Context().Done():
			return false
		case <-time.After(100 * time.Millisecond):
		}
	}
	l.fail(what + ": " + err.Error())
	return false
}

// do places an order and waits for its end.
func (l *load) do(what string, o *harness.Order, f func(*osbclient.Client) (*osbclient.Answer, error)) bool {
	var answer *osbclient.Answer
	if !l.ask(what, func(p *osbclient.Client) (err error) {
		answer, err = f(p)
		return err
	}) {
		return false
	}
	begun := time.Now()
	l.mu.Lock()
	l.accepted++
	l.acceptedBy[what]++
	l.mu.Unlock()
	state := osb.StateInProgress
	text := ""
	if !l.ask("poll "+what, func(p *osbclient.Client) error {
		last, err := p.Poll(l.w.t.Context(), o.InstanceID, answer.Operation, nil)
		if err == nil {
			state, text = last.State, last.Description
		}
		if what == "deprovision" && harness.StatusOf(err) == harness.Gone {
			state, err = osb.StateSucceeded, nil
		}
		return err
	}) {
		return false
	}
	l.mu.Lock()
	l.ended++
	l.slowest = max(l.slowest, time.Since(begun))
	l.mu.Unlock()
	if state != osb.StateSucceeded {
		l.fail(fmt.Sprintf("%s of %s ended in %s: %s", what, o.InstanceID, state, text))
		return false
	}
	return true
}

// progress waits until n more operations have ended.
func (l *load) progress(n int) {
	l.w.t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.ended
	}
	from := count()
	testkit.Eventually(l.w.t, limit, "operations to end", func() bool { return count() >= from+n })
}

// replace stops a replica and starts it again.
func (w *world) replace(replica string) *process {
	w.t.Helper()
	w.running[replica].Stop()
	p := w.start(replica, w.more[replica])
	w.ready(p)
	return p
}

// keyring writes the keyring of a service, which its replicas read at their start.
func (w *world) keyring(service, file string, keys ...string) {
	w.t.Helper()
	path := filepath.Join(w.secrets.Dir, service, file)
	require.NoError(w.t, errors.Join(os.Remove(path), os.WriteFile(path, []byte(strings.Join(keys, ",")), 0o600)))
}

// keyed returns the replicas that have a keyring, with its file.
func (w *world) keyed() map[string]string {
	out := map[string]string{}
	for replica := range w.running {
		switch {
		case strings.HasPrefix(replica, "broker"):
			out[replica] = "seal-keys"
		case strings.HasPrefix(replica, "worker-"):
			out[replica] = "stage-keys"
		}
	}
	return out
}

// roll sets the keyrings of all brokers and workers, one replica after the other, and restarts the orchestrators.
func (w *world) roll(sealKeys, stageKeys []string) {
	w.t.Helper()
	for replica, file := range w.keyed() {
		service, _, _ := strings.Cut(replica, "/")
		keys := stageKeys
		if file == "seal-keys" {
			keys = sealKeys
		}
		w.keyring(service, file, keys...)
	}
	for _, replica := range slices.Sorted(maps.Keys(w.running)) {
		w.replace(replica)
	}
}

var staleGauge = regexp.MustCompile(`(?m)^keb_broker_secrets_stale (\S+)$`)

// stale returns the number of values that a broker cannot seal again.
func (w *world) stale(replica string) float64 {
	w.t.Helper()
	_, body := w.get("http://"+w.running[replica].metrics+"/metrics", nil)
	found := staleGauge.FindSubmatch(body)
	if found == nil {
		return -1
	}
	value, err := strconv.ParseFloat(string(found[1]), 64)
	require.NoError(w.t, err)
	return value
}

// sealedBy returns the number of sealed values in the database by key id.
func (w *world) sealedBy() map[string]int {
	w.t.Helper()
	db, err := postgres.Open(w.t.Context(), postgres.Config{URL: w.database, MaxOpen: 1})
	require.NoError(w.t, err)
	defer func() { _ = postgres.Close(db) }()
	var values []string
	if err := db.Select(&values, `SELECT sealed FROM broker.credentials UNION ALL SELECT sealed FROM broker.bindings WHERE sealed <> ''
		UNION ALL SELECT c.value FROM broker.updates u, json_each_text(u.credentials) c`); err != nil {
		w.t.Fatal(err)
	}
	counts := map[string]int{}
	for _, value := range values {
		counts[strings.Split(value, ".")[1]]++
	}
	return counts
}

func TestRotation_RunningOperations_Continue(t *testing.T) {
	testkit.Suite(t, "secrets")
	begun := time.Now()
	w := newWorld(t, "")
	w.startAll()
	var second []*process
	for _, service := range append([]string{"broker", "orchestrator"}, doubled...) {
		replica := service + "/2"
		if service == "broker" {
			w.more[replica] = map[string]string{"KEB_OSB_ADDR": w.brokers[1]}
		}
		second = append(second, w.start(replica, w.more[replica]))
	}
	w.ready(second...)
	// Create some instances before the rotation.
	var olds []*harness.Order
	for range 5 {
		o := w.ordered(harness.Azure(), "an old instance")
		w.PollEnd(o, w.Provision(o), osb.StateSucceeded, limit)
		w.bind(o, "old")
		olds = append(olds, o)
	}
	oldSeal, oldStage := w.secrets.Read("broker/seal-keys"), w.secrets.Read("worker-btp/stage-keys")
	newSeal, newStage := "k2:"+seal.NewKey(), "k2:"+seal.NewKey()
	w.canaries.set(func(c harness.Canaries) {
		noteSecret(c, "new seal key", newSeal)
		noteSecret(c, "new stage key", newStage)
	})
	before := w.sealedBy()

	l := w.startLoad()
	l.progress(customers)
	t.Logf("1. the new keys after the old ones, after %s", time.Since(begun).Round(time.Second))
	w.roll([]string{oldSeal, newSeal}, []string{oldStage, newStage})
	l.progress(customers)
	t.Logf("2. in front, after %s", time.Since(begun).Round(time.Second))
	w.roll([]string{newSeal, oldSeal}, []string{newStage, oldStage})
	testkit.Eventually(t, limit, "everything to be sealed with the new key", func() bool {
		return w.sealedBy()["k1"] == 0 && w.stale("broker") == 0 && w.stale("broker/2") == 0
	})
	l.progress(3 * customers) // the longest stage has ended
	t.Logf("3. the old keys are removed, after %s", time.Since(begun).Round(time.Second))
	w.roll([]string{newSeal}, []string{newStage})
	l.progress(customers)
	l.end()
	for _, text := range l.failed {
		t.Error(text)
	}
	for _, o := range olds {
		if _, err := w.Platform().GetBinding(t.Context(), o.InstanceID, "old"); err != nil {
			t.Errorf("a binding from before the rotation: %v", err)
		}
		w.PollEnd(o, w.Update(o, osbclient.Change{Parameters: map[string]any{"machineType": "Standard_D8_v3"}}), osb.StateSucceeded, limit)
	}
	after, retried := w.sealedBy(), 0
	for name, content := range w.logs() {
		retried += strings.Count(string(content), "sealed with an unknown key")
		if strings.Contains(string(content), "CANARY") {
			t.Errorf("a secret is in the %s", name)
		}
	}
	if retried > 0 {
		t.Errorf("%d times something was sealed with a key that a process did not have", retried)
	}
	fmt.Printf("\n%-58s %v\n%-58s %d, %d, %d\n%-58s %d\n%-58s %d\n%-58s %d\n%-58s %s\n%-58s %v\n%-58s %v\n%-58s %.0f\n%-58s %s\n\n",
		"key rotation: operations accepted", l.acceptedBy, "accepted, ended, failed", l.accepted, l.ended, len(l.failed), "bindings made and read again", l.bindings,
		"requests repeated while a broker restarted", l.repeated, "restarts of processes", len(w.all)-len(w.running), "slowest operation", l.slowest.Round(time.Millisecond),
		"sealed values by key, before", before, "sealed values by key, at the end", after, "stale secrets at the end", w.stale("broker"), "took", time.Since(begun).Round(time.Second))

	w.wrongOrder(olds, newSeal, newStage)
}

// awaitMessage waits until the message of an operation in progress contains a text, and returns the message.
func (w *world) awaitMessage(id, text string) string {
	w.t.Helper()
	said := ""
	w.Await(id, limit, "operation "+id+" to say "+text, func(op *harness.Operation) bool {
		if op.Final() {
			w.t.Fatalf("operation %s ended in %s: %+v", id, op.State, op.Error)
		}
		for _, entry := range op.History {
			if entry.Error != nil && strings.Contains(entry.Error.Message, text) {
				said = entry.Step + ": " + entry.Error.Message
			}
		}
		return said != ""
	})
	return said
}

// wrongOrder removes the keys too early: no data is lost, the errors are reported, and operations continue after the keys are restored.
func (w *world) wrongOrder(olds []*harness.Order, sealKey, stageKey string) {
	t := w.t
	t.Helper()
	third, thirdStage := "k3:"+seal.NewKey(), "k3:"+seal.NewKey()
	// Remove the seal key while an operation is before the step that needs a sealed value.
	w.echo.set(1_000_000)
	ordered := w.ordered(harness.Azure(), "an order on its way")
	waiting := w.Provision(ordered)
	w.Await(waiting, limit, "the provisioning to be in progress", func(op *harness.Operation) bool { return op.Cursor > 4 })
	w.keyring("broker", "seal-keys", third)
	for _, broker := range []string{"broker", "broker/2"} {
		w.replace(broker)
	}
	testkit.Eventually(t, limit, "the gauge to report stale values", func() bool { return w.stale("broker") >= float64(2*len(olds)) })
	first := olds[0]
	w.echo.set(0)
	w.awaitMessage(waiting, "credentials cannot be opened")
	if _, err := w.Platform().GetBinding(t.Context(), first.InstanceID, "old"); harness.StatusOf(err) != http.StatusInternalServerError {
		t.Errorf("a binding is read without its key: %v", err)
	}
	log := w.running["broker"].Output()
	for _, want := range []string{`key id \"k2\": sealed with an unknown key`, first.InstanceID, "secret not sealed anew", "secrets cannot be sealed anew"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log of the broker does not contain %q", want)
		}
	}
	w.keyring("broker", "seal-keys", third, sealKey)
	for _, broker := range []string{"broker", "broker/2"} {
		w.replace(broker)
	}
	w.PollEnd(ordered, waiting, osb.StateSucceeded, limit)
	testkit.Eventually(t, limit, "nothing to be stale", func() bool {
		return w.stale("broker") == 0 && w.stale("broker/2") == 0 && w.sealedBy()["k2"] == 0
	})
	if _, err := w.Platform().GetBinding(t.Context(), first.InstanceID, "old"); err != nil {
		t.Errorf("a binding, when the key is back: %v", err)
	}

	// Remove the key of the stage memory at one of the workers that read values of other workers.
	w.keyring("worker-provisioner", "stage-keys", thirdStage)
	for _, replica := range []string{"worker-provisioner", "worker-provisioner/2"} {
		w.replace(replica)
	}
	o := w.ordered(harness.Azure(), "an order in between")
	id := w.Provision(o)
	message := w.awaitMessage(id, "sealed with an unknown key")
	if !strings.Contains(message, `key id "k`) {
		t.Errorf("the step that waits has the message %q", message)
	}
	w.keyring("worker-provisioner", "stage-keys", thirdStage, stageKey)
	for _, service := range slices.Sorted(maps.Keys(w.keyed())) {
		if name, _, _ := strings.Cut(service, "/"); name != "broker" && name != "worker-provisioner" {
			w.keyring(name, "stage-keys", stageKey, thirdStage)
		}
	}
	for replica, file := range w.keyed() {
		if file == "stage-keys" {
			w.replace(replica)
		}
	}
	w.PollEnd(o, id, osb.StateSucceeded, limit)
	fmt.Printf("%-58s %s\n%-58s %s\n%-58s 0\n\n", "key removed too early: a step without credentials says", "credentials cannot be opened: see the broker's log",
		"a step without stage memory says", message, "operations failed by it")
}
