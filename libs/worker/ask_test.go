package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

func TestKeep_ValueOfAnInstance_GoesToTheBroker(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	var mu sync.Mutex
	var kept json.RawMessage
	for subject, answer := range map[string]func([]byte) (any, error){
		event.AskKeepAs(workerName): func(data []byte) (any, error) {
			var q event.KeepRequest
			err := json.Unmarshal(data, &q)
			kept = q.Value
			return event.KeepAnswer{}, err
		},
		event.AskKeptAs(workerName): func([]byte) (any, error) { return event.KeptAnswer{Value: kept}, nil },
	} {
		stop, err := o.bus.Answer(subject, "broker", func(_ context.Context, data []byte) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			return answer(data)
		})
		require.NoError(t, err)
		t.Cleanup(stop)
	}
	o.start([]worker.Step{named("Keep", func(ctx context.Context, op operation) (operation, time.Duration, error) {
		var got map[string]string
		if err := op.Kept(ctx, &got); !errors.Is(err, worker.ErrNotKept) {
			return op, 0, fmt.Errorf("before: %w", err)
		}
		if err := op.Keep(ctx, strings.Repeat("x", event.MaxKept)); err == nil {
			return op, 0, errors.New("a value over the limit is kept")
		}
		if err := errors.Join(op.Keep(ctx, map[string]string{"secret": "s"}), op.Kept(ctx, &got)); err != nil {
			return op, 0, err
		}
		return op, 0, op.SaveDetails(map[string]bool{"got": got["secret"] == "s"})
	})})
	o.send(command("Keep"))
	if r := o.next(); r.Type != event.TypeStepSucceeded || string(r.Details) != `{"got":true}` {
		t.Errorf("%s with details %s and error %+v", r.Type, r.Details, r.Error)
	}
}

func TestKept_BrokerCannotOpenIt_IsBroken(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	stop, err := o.bus.Answer(event.AskKeptAs(workerName), "broker", func(context.Context, []byte) (any, error) {
		return nil, errors.New(event.KeptBroken)
	})
	require.NoError(t, err)
	t.Cleanup(stop)
	o.start([]worker.Step{named("Kept", func(ctx context.Context, op operation) (operation, time.Duration, error) {
		var got any
		return op, 0, op.SaveDetails(map[string]bool{"broken": errors.Is(op.Kept(ctx, &got), worker.ErrKeptBroken)})
	})})
	o.send(command("Kept"))
	if r := o.next(); r.Type != event.TypeStepSucceeded || string(r.Details) != `{"broken":true}` {
		t.Errorf("%s with details %s and error %+v", r.Type, r.Details, r.Error)
	}
}

func TestClaimCredentials_Broker_Answers(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	asked := make(chan event.CredentialsRequest, 1)
	stop, err := o.bus.Answer(event.AskCredentialsAs(workerName), "broker", func(_ context.Context, data []byte) (any, error) {
		var q event.CredentialsRequest
		if err := json.Unmarshal(data, &q); err != nil {
			return nil, err
		}
		asked <- q
		if q.Name == event.CredentialsKubeconfig {
			return nil, errors.New("they are gone")
		}
		return event.CredentialsAnswer{Credentials: json.RawMessage(`{"clientid":"id"}`)}, nil
	})
	require.NoError(t, err)
	t.Cleanup(stop)
	o.start([]worker.Step{named("Claim", func(ctx context.Context, op operation) (operation, time.Duration, error) {
		got := map[string]string{}
		if err := op.ClaimCredentials(ctx, op.Credentials[0], &got); err != nil {
			return op, 0, err
		}
		return op, 0, op.SaveDetails(map[string]bool{"got": got["clientid"] == "id"})
	})})

	c := command("Claim")
	c.Operation.Credentials = []string{event.CredentialsServiceManager}
	o.send(c)
	if r := o.next(); r.Type != event.TypeStepSucceeded || string(r.Details) != `{"got":true}` {
		t.Errorf("%s with details %s and error %+v", r.Type, r.Details, r.Error)
	}
	want := event.CredentialsRequest{
		InstanceID: c.Operation.InstanceID, OperationID: c.Operation.ID, Name: event.CredentialsServiceManager,
	}
	if diff := cmp.Diff(want, receive(t, "the broker is asked", asked)); diff != "" {
		t.Errorf("request (-want +got):\n%s", diff)
	}

	c = command("Claim")
	c.Operation.Credentials = []string{event.CredentialsKubeconfig}
	o.send(c)
	if r := o.next(); r.Type != event.TypeStepFailed || !strings.Contains(r.Error.Message, "they are gone") {
		t.Errorf("%s with error %+v: want the broker's error", r.Type, r.Error)
	}
}

func TestWorker_MicroService_IsDiscovered(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	w := o.start([]worker.Step{noop("B_Step"), noop("A_Step")})
	ask := func(subject string, into any) bool {
		m, err := o.bus.NATS().Request(subject, nil, time.Second)
		return err == nil && json.Unmarshal(m.Data, into) == nil
	}
	var info micro.Info
	infoSubject := "$SRV.INFO." + worker.ServicePrefix + workerName
	testkit.Eventually(t, soon, "the worker answers", func() bool { return ask(infoSubject, &info) })
	want := map[string]string{
		worker.MetadataWorker: workerName, worker.MetadataVersion: "1.2.3", worker.MetadataSteps: "A_Step,B_Step",
	}
	for name, value := range want {
		if info.Metadata[name] != value {
			t.Errorf("metadata %s is %q, want %q", name, info.Metadata[name], value)
		}
	}
	if info.Version != "1.2.3" || !slices.ContainsFunc(info.Endpoints, func(e micro.EndpointInfo) bool {
		return e.Subject == "keb.worker.tested.ping"
	}) {
		t.Errorf("version %q, endpoints %+v", info.Version, info.Endpoints)
	}
	var pong worker.Pong
	testkit.Eventually(t, soon, "an answer to a ping", func() bool { return ask(worker.PingSubject(workerName), &pong) })
	wantPong := worker.Pong{Worker: workerName, Version: "1.2.3", Steps: []string{"A_Step", "B_Step"}}
	if diff := cmp.Diff(wantPong, pong); diff != "" {
		t.Errorf("pong (-want +got):\n%s", diff)
	}
	require.NoError(t, w.stop())
	testkit.Eventually(t, soon, "the stopped worker does not answer", func() bool { return !ask(infoSubject, &info) })
}

func TestWorker_OddVersion_IsAnnounced(t *testing.T) {
	t.Parallel()
	o := newOrchestrator(t)
	for _, version := range []string{"", "v2.0.1", "main-3f2a1b"} {
		w := o.start([]worker.Step{noop("Step")}, config(func(c *worker.Config) { c.Version = version }))
		o.send(command("Step"))
		if r := o.next(); r.Worker.Version != version {
			t.Errorf("version %q in the result, want %q", r.Worker.Version, version)
		}
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	}
}
