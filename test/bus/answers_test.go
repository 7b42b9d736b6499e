package bus

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

// witness records the messages that reach users on their subjects.
type witness struct {
	mu   sync.Mutex
	seen []string
}

func (w *witness) listen(t *testing.T, a *attacker) {
	t.Helper()
	_, subjects := needs(a.user)
	for _, s := range subjects {
		if strings.HasPrefix(s, "_INBOX_") {
			s = "_INBOX_" + a.user + ".x" // its answers are below this subject, too
		}
		_, err := a.nc.Subscribe(s, func(m *nats.Msg) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.seen = append(w.seen, fmt.Sprintf("%s gets %s: %.60q", a.user, m.Subject, m.Data))
		})
		require.NoError(t, err)
	}
}

func (w *witness) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.seen...)
}

// targets returns the subjects where an answer of the server would do harm: streams, consumers, and subjects of other users.
func (in *installation) targets() []string {
	targets := []string{
		"keb.request.deprovision", "keb.fact.provision.operation-succeeded", "keb.notice.operations", "keb.dead.KEB_REQUESTS", "keb.ask.orchestrator.operations",
		"keb.ask.broker.upgrade", "$JS.API.STREAM.CREATE.OTHER", "$JS.API.STREAM.NAMES", "$SRV.PING", "_INBOX_broker.x", "_INBOX_orchestrator.x", "_INBOX_worker-edp.x",
	}
	for _, s := range append(event.Streams(), event.StreamSpec{Name: "KV_" + event.StageBucket}) {
		for _, verb := range []string{"DELETE", "PURGE", "UPDATE", "SNAPSHOT", "MSG.DELETE"} {
			targets = append(targets, "$JS.API.STREAM."+verb+"."+string(s.Name))
		}
		targets = append(targets, "$JS.API.CONSUMER.CREATE."+string(s.Name), "$JS.API.CONSUMER.CREATE."+string(s.Name)+".new",
			"$JS.API.CONSUMER.DELETE."+string(s.Name)+".orchestrator", "$JS.API.CONSUMER.DELETE."+string(s.Name)+".avs")
	}
	for _, w := range []string{"edp", "provisioner", "broker"} {
		targets = append(targets, "keb.result."+w+".S", "keb.command."+w+".S", "keb.worker."+w+".ping", "keb.ask."+w+".x", "keb.ask.broker.credentials."+w,
			"keb.ask.broker.keep."+w, "keb.ask.broker.kept."+w, "keb.ask.orchestrator.current."+w, "keb.ask.orchestrator.extend."+w, "$JS.API.CONSUMER.MSG.NEXT.KEB_COMMANDS."+w)
	}
	return targets
}

// TestAnswers_ForbiddenReplySubject_AreNotSent: the server sends its answers with its own permissions to the reply subject of the question. A
// user must not abuse that to delete a stream or to publish as another user.
func TestAnswers_ForbiddenReplySubject_AreNotSent(t *testing.T) { //nolint:paralleltest // the server reads its passwords from the environment
	in := install(t, testkit.Logger(t))
	in.seed(t)
	targets := in.targets()
	tries := 0
	for _, user := range in.users() {
		if user == event.UserOrchestrator {
			continue // the streams are its own
		}
		mayPublish, _ := needs(user)
		questions := map[string]string{} // subject -> body
		switch name, isWorker := strings.CutPrefix(user, "worker-"); {
		case isWorker:
			a := in.attack(t, user)
			// The content of these questions is free: the answer repeats it.
			for i, made := range []string{"", `{"name":"OTHER","subjects":["other"]}`, `{"stream_name":"KEB_COMMANDS","config":{"durable_name":"new","deliver_subject":"_INBOX_` + user + `.x"}}`} {
				subject := fmt.Sprintf("$KV.keb_stage.%s.s.1.k%d", name, i)
				m := nats.NewMsg(subject)
				m.Data = []byte(made)
				m.Header.Set("ce-type", string(event.TypeStepSucceeded))
				_, err := a.nc.RequestMsg(m, waitLimit)
				require.NoError(t, err)
				questions["$JS.API.DIRECT.GET.KV_keb_stage."+subject] = ""
			}
			questions["$JS.API.STREAM.INFO.KV_keb_stage"] = ""
			questions["$JS.API.CONSUMER.INFO.KEB_COMMANDS."+name] = ""
			questions["$JS.API.CONSUMER.MSG.NEXT.KEB_COMMANDS."+name] = `{"batch":1,"no_wait":true}`
		case user == event.UserBroker:
			questions["$JS.API.CONSUMER.INFO.KEB_FACTS.broker"] = ""
			questions["$JS.API.CONSUMER.MSG.NEXT.KEB_COMMANDS.broker"] = `{"batch":1,"no_wait":true}`
		case user == event.UserSignal:
			questions[event.SignalSubject("approval")] = "" // the stream confirms it
		default:
			questions["$JS.API.STREAM.INFO.KEB_COMMANDS"] = ""
			questions["$JS.API.STREAM.LIST"] = ""
			questions["$JS.API.STREAM.MSG.GET.KEB_DEAD"] = `{"seq":1}`
		}
		own := "KEB_COMMANDS/" + strings.TrimPrefix(user, "worker-") // its own commands
		before := snapshot(t, in.Bus)
		delete(before.Consumers, own)
		var w witness
		for _, other := range []string{"broker", "orchestrator", "worker-edp", "worker-provisioner"} {
			if other != user {
				w.listen(t, in.attack(t, other))
			}
		}
		a := in.attack(t, user)
		for question, body := range questions {
			for _, target := range targets {
				if within(mayPublish, target) {
					continue
				}
				tries++
				require.NoError(t, a.nc.PublishRequest(question, target, []byte(body)))
			}
		}
		a.settled(t)
		// The answers to these questions come after those to all earlier ones.
		for question, body := range questions {
			_, err := a.nc.Request(question, []byte(body), waitLimit)
			require.NoErrorf(t, err, "%s asks %s", user, question)
		}
		after := snapshot(t, in.Bus)
		delete(after.Consumers, own)
		if user == event.UserSignal {
			delete(after.Subjects, event.SignalSubject("approval")) // its own event
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%s made the server change the streams (-before +after):\n%s", user, diff)
		}
		if seen := w.all(); len(seen) > 0 {
			t.Errorf("%s made the server send to other users: %v", user, seen)
		}
	}
	if tries < 1000 {
		t.Errorf("only %d tries", tries)
	}
	t.Logf("bus: %d questions with a forbidden reply subject, no answer arrived", tries)
}
