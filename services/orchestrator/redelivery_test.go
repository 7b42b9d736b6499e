package orchestrator_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

// first is a replica of alpha that receives the next command, optionally publishes its result, and ends without acknowledging it. The bus
// redelivers after ten seconds, or when dies is called.
func (s *system) first(answers bool) (c event.StepExecute, dies func()) {
	s.t.Helper()
	ctx := s.t.Context()
	var m jetstream.Msg
	testkit.Eventually(s.t, patience, "a command for alpha arrives", func() bool {
		consumer, err := s.bus.JetStream().Consumer(ctx, string(event.StreamCommands), "alpha")
		if err != nil {
			return false
		}
		m, err = consumer.Next(jetstream.FetchMaxWait(patience))
		if errors.Is(err, nats.ErrNoResponders) { // a new consumer is listed before it answers
			return false
		}
		require.NoError(s.t, err)
		return true
	})
	dies = func() {
		if err := m.Nak(); err != nil {
			s.t.Error(err)
		}
	}
	e, err := bus.Decode(m.Headers(), m.Data())
	require.NoError(s.t, err)
	c, err = bus.Data[event.StepExecute](e)
	require.NoError(s.t, err)
	if !answers {
		return c, dies
	}
	id := event.DispatchID(c.Operation.ID, c.Cursor, c.Dispatch)
	now := time.Now().UTC()
	result, err := bus.New(event.TypeStepSucceeded, id, event.WorkerSource("alpha"), c.Operation.ID, now, event.StepSucceeded{Result: event.Result{
		OperationID: c.Operation.ID, Cursor: c.Cursor, Stage: c.Stage, Step: c.Step, Worker: event.Worker{Name: "alpha"}, StartedAt: now, FinishedAt: now,
	}})
	require.NoError(s.t, err)
	require.NoError(s.t, s.bus.Publish(ctx, bus.Message{Subject: event.ResultSubject("alpha", c.Step), ID: id, Event: result}))
	return c, dies
}

// The worker ends between its result and its acknowledgement, so that the bus redelivers the command to another replica after the stage has
// finished.
func TestRedelivery_AckLost_FinishedStageIsNotRepeated(t *testing.T) {
	s := newSystem(t)
	s.orchestrator()
	s.worker("beta")
	answered := operation(event.Provision, "i-1", "trial")
	s.request(answered)
	c, dies := s.first(true)
	if c.Operation.ID != answered.ID || c.Step != "First" {
		t.Fatalf("the command is %s of %s", c.Step, c.Operation.ID)
	}
	dead := []func(){dies}
	s.await(answered, event.Succeeded)
	unanswered := operation(event.Provision, "i-2", "trial")
	s.request(unanswered)
	// The answered command arrives first if this has taken longer than the bus waits. If it were returned, the bus would send it again at
	// once.
	for c.Operation.ID != unanswered.ID {
		c, dies = s.first(false)
		dead = append(dead, dies)
	}
	for _, dies := range dead {
		dies()
	}

	s.registry = prometheus.NewRegistry()
	b := testkit.Bus(t, s.nats.URL())
	second, err := worker.New(worker.Config{Name: "alpha", Version: "1.0.0"}, worker.Deps{
		Bus: b, StageMemory: stagemem.New(b.JetStream(), s.keys), Log: s.log, Registerer: s.registry,
	}, scripted{name: "First", script: s.script}, scripted{name: "Optional", script: s.script})
	require.NoError(t, err)
	start(t, "the second replica", second.Run)
	s.await(unanswered, event.Succeeded)
	testkit.Eventually(t, patience, "no command is left", func() bool {
		stream, err := s.bus.JetStream().Stream(t.Context(), string(event.StreamCommands))
		return err == nil && stream.CachedInfo().State.Msgs == 0
	})
	if n := s.script.countOf(answered.ID, "First"); n != 0 {
		t.Errorf("the second replica executed the answered step %d times, want never", n)
	}
	if n := s.script.countOf(unanswered.ID, "First"); n != 1 {
		t.Errorf("the second replica executed the unanswered step %d times, want once", n)
	}
	if n := s.metric("keb_worker_commands_ignored_total", "outdated", "alpha"); n < 1 {
		t.Errorf("%g commands are counted as outdated, want one", n)
	}
}
