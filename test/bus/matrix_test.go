package bus

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// seed publishes a message to each stream, so that there is something to read.
func (in *installation) seed(t *testing.T) {
	t.Helper()
	for user, subjects := range map[string][]string{
		event.UserBroker:       {"keb.request.provision", "keb.dead.KEB_FACTS"},
		event.UserOrchestrator: {"keb.command.avs.S", "keb.fact.provision.operation-started"},
		event.UserSignal:       {"keb.signal.approval.17"},
		"worker-edp":           {"keb.result.edp.S", "$KV.keb_stage.o.s.1.secret"},
	} {
		b := in.Connect(user)
		for _, subject := range subjects {
			_, err := b.JetStream().Publish(t.Context(), subject, []byte("{}"))
			require.NoErrorf(t, err, "%s publishes %s", user, subject)
		}
	}
}

// TestBus_Permissions_AreMinimal tries the universe as every user, and compares the server's decisions with the table of needs.
func TestBus_Permissions_AreMinimal(t *testing.T) { //nolint:paralleltest // the server reads its passwords from the environment
	in := install(t, testkit.Logger(t))
	in.seed(t)
	before := snapshot(t, in.Bus)
	tries, refused, allowed := 0, 0, 0
	for _, user := range in.users() {
		publish, subscribe := in.universe(user)
		mayPublish, maySubscribe := needs(user)
		a := in.attack(t, user)
		// First try all actions that must be rejected, with a harmful body and reply subject.
		for _, subject := range publish {
			if within(mayPublish, subject) {
				continue
			}
			require.NoError(t, a.nc.PublishRequest(subject, "_INBOX_"+user+".answer", []byte(`{"name":"OTHER","subjects":["other"]}`)))
		}
		for _, subject := range subscribe {
			_, err := a.nc.SubscribeSync(subject)
			require.NoError(t, err)
		}
		a.settled(t)
		for _, subject := range publish {
			if within(mayPublish, subject) {
				continue
			}
			tries++
			if !a.isRefused("publish", subject) {
				t.Errorf("%s publishes on %s", user, subject)
				continue
			}
			refused++
		}
		for _, subject := range subscribe {
			tries++
			switch is, must := a.isRefused("subscription", subject), !within(maySubscribe, subject); {
			case is != must:
				t.Errorf("%s listens on %s: refused is %t, want %t", user, subject, is, must)
			case is:
				refused++
			default:
				allowed++
			}
		}
	}
	if diff := cmp.Diff(before, snapshot(t, in.Bus)); diff != "" {
		t.Errorf("rejected messages changed the streams (-before +after):\n%s", diff)
	}
	// Then try all actions that must be permitted; otherwise the test would pass with a server that rejects everything.
	for _, user := range in.users() {
		publish, _ := in.universe(user)
		mayPublish, _ := needs(user)
		a := in.attack(t, user)
		for _, subject := range publish {
			if !within(mayPublish, subject) {
				continue
			}
			tries++
			require.NoError(t, a.nc.Publish(subject, nil))
		}
		a.settled(t)
		for _, subject := range publish {
			if !within(mayPublish, subject) {
				continue
			}
			if a.isRefused("publish", subject) {
				t.Errorf("%s may not publish on %s", user, subject)
				continue
			}
			allowed++
		}
	}
	t.Logf("bus: %d users, %d tries, %d rejected, %d permitted", len(in.users()), tries, refused, allowed)
	if refused < 10*allowed || allowed == 0 {
		t.Errorf("%d are refused and %d allowed: the universe has become small", refused, allowed)
	}
}

// TestBus_PurgeStageMemory_IsForbidden: one message with a roll-up would remove all others from a key-value bucket.
func TestBus_PurgeStageMemory_IsForbidden(t *testing.T) { //nolint:paralleltest // the server reads its passwords from the environment
	in := install(t, testkit.Logger(t))
	in.seed(t)
	before := snapshot(t, in.Bus)
	b := in.Connect("worker-lms")
	for _, rollup := range []string{"all", "sub"} {
		m := nats.NewMsg("$KV.keb_stage.mine.s.1.k")
		m.Header.Set("Nats-Rollup", rollup)
		if _, err := b.JetStream().PublishMsg(t.Context(), m); err == nil {
			t.Errorf("a roll-up %q is accepted", rollup)
		}
	}
	if diff := cmp.Diff(before, snapshot(t, in.Bus)); diff != "" {
		t.Errorf("the bucket has changed (-before +after):\n%s", diff)
	}
}
