//go:build linux

package upgrade

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/orchestrator/processes"
	"github.com/kyma-project/keb/test/history"
	"github.com/kyma-project/keb/test/internal/harness"
)

// limit is the time limit for a step of TestRoll.
const limit = time.Minute

// waiting are the steps that wait until a test lets them go on, one in each process.
var waiting = map[string]bool{"Check_Runtime": true, "Check_Runtime_Removal": true}

// step succeeds at once, or waits for the gate.
type step struct {
	name string
	open *atomic.Bool
}

func (s step) Name() string { return s.name }

func (s step) Run(_ context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	if waiting[s.name] && !s.open.Load() {
		return worker.Wait(op, 200*time.Millisecond, "closed")
	}
	return op, 0, nil
}

// small is an installation of orchestrators and brokers of two versions. Those of the release are processes, those of this tree run in the process of
// the test, as do the workers, whose steps do nothing.
type small struct {
	*harness.Services
	t       *testing.T
	release *harness.Release
	db      *sqlx.DB
	open    atomic.Bool
}

// TestRoll_ForwardAndBack_LosesNothing is the part of the suite that make test runs.
func TestRoll_ForwardAndBack_LosesNothing(t *testing.T) {
	release := harness.LastRelease(t, root)
	orchestratorOf, brokerOf := release.Program(t, "orchestrator"), release.Program(t, "broker")
	s := &small{Services: harness.NewServices(t, "", slog.New(slog.DiscardHandler)), t: t, release: release}
	url := pgtest.Database(t, nil)
	s.Orchestrator.Database.URL, s.Broker.Database.URL = url, url
	s.Broker.RetryAfter = 100 * time.Millisecond
	startOld := func() (platform *osbclient.Client, stop func()) {
		common := []string{"KEB_DATABASE_URL=" + url, "KEB_NATS_URL=" + s.NATS(), "KEB_METRICS_ADDR=127.0.0.1:0", "KEB_LOG_LEVEL=warn"}
		door := testkit.Addr(t)
		o := harness.Spawn(t, orchestratorOf, append(common, "KEB_OPERATOR_ADDR="+testkit.Addr(t)))
		b := harness.Spawn(t, brokerOf, append(common, "KEB_OSB_ADDR="+door, "KEB_OSB_USER=keb", "KEB_OSB_PASSWORD=keb", "KEB_SEAL_KEYS="+s.Broker.SealKeys, "KEB_OSB_RETRY_AFTER=100ms"))
		platform = s.platform(door)
		s.await("the release to answer", func() bool {
			if o.Ended() || b.Ended() {
				t.Fatal("a process of the release ended")
			}
			_, err := platform.Catalog(t.Context())
			return err == nil
		})
		return platform, func() { o.Stop(); b.Stop() }
	}
	startNew := func() (platform *osbclient.Client, stop func()) {
		_, stopOrchestrator := s.StartOrchestrator("")
		door, stopBroker := s.StartBroker()
		return s.platform(door), func() { stopBroker(); stopOrchestrator() }
	}
	old, stopOld := startOld()
	var err error
	s.db, err = postgres.Open(t.Context(), postgres.Config{URL: url, MaxOpen: 2, ApplicationName: "test"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.db.Close() })
	s.startWorkers()

	var orders []*harness.Order
	order := func(platform *osbclient.Client) {
		t.Helper()
		o := harness.Azure()
		answer, err := platform.Provision(t.Context(), o.InstanceID, o.Body())
		require.NoError(t, err)
		require.True(t, answer.Async)
		orders = append(orders, o)
	}
	const few = 3
	for range few {
		order(old)
	}
	s.awaitWaiting(few)

	t.Log("forward: both versions run on the new schema, then this tree alone")
	head, stopHead := startNew()
	order(head)
	order(old)
	s.awaitWaiting(few + 2)
	stopOld()
	s.pass(head, orders)
	for _, o := range orders {
		_, err := head.Update(t.Context(), o.InstanceID, osbclient.Change{ServiceID: harness.ServiceID, Parameters: map[string]any{"machineType": "Standard_D8_v3"}})
		require.NoError(t, err)
	}
	order(head)
	s.awaitWaiting(few + 3)

	t.Log("back: the release starts on the new schema and ends what this tree has begun")
	old, stopOld = startOld()
	defer stopOld()
	stopHead()
	s.pass(old, orders)
	for _, o := range orders {
		_, err := old.Deprovision(t.Context(), o.InstanceID, harness.ServiceID, o.PlanID)
		require.NoError(t, err)
	}
	s.pass(old, orders)

	// A fact that a stopping orchestrator could not publish is published by the next check of another one, which is once in a minute.
	testkit.Eventually(t, 2*limit, "all facts to be published", func() bool {
		var unpublished int
		err := s.db.QueryRowContext(t.Context(), `SELECT count(*) FROM orchestrator.operations WHERE facts_after IS NOT NULL`).Scan(&unpublished)
		return err == nil && unpublished == 0
	})
	v := history.Check(history.Events(t, s.db, s.Bus.JetStream()), limit)
	for _, violation := range v.Violations {
		t.Error(violation)
	}
	var ended, succeeded int
	require.NoError(t, s.db.QueryRowContext(t.Context(), `SELECT count(*), count(*) FILTER (WHERE state = 'succeeded') FROM orchestrator.operations`).Scan(&ended, &succeeded))
	if want := 2*len(orders) + few + 2; ended != want || succeeded != want || v.Facts == 0 {
		t.Errorf("%d operations, %d succeeded, %d facts; want %d that succeeded, and facts", ended, succeeded, v.Facts, want)
	}
}

func (s *small) await(what string, ok func() bool) {
	s.t.Helper()
	testkit.Eventually(s.t, limit, what, ok)
}

func (s *small) platform(addr string) *osbclient.Client {
	s.t.Helper()
	client, err := osbclient.New(osbclient.Config{BaseURL: "http://" + addr + "/oauth/cf-eu10", User: "keb", Password: "keb", PollEvery: 50 * time.Millisecond, PollAtMost: 200 * time.Millisecond}, nil)
	require.NoError(s.t, err)
	return client
}

// startWorkers starts a worker for each one of the built-in processes.
func (s *small) startWorkers() {
	s.t.Helper()
	set, err := process.Load(processes.FS)
	require.NoError(s.t, err)
	steps := map[string]map[string]bool{}
	for _, p := range set {
		for _, stage := range p.Stages {
			for _, x := range stage.Steps {
				if steps[x.Worker] == nil {
					steps[x.Worker] = map[string]bool{}
				}
				steps[x.Worker][x.Name] = true
			}
		}
	}
	for _, name := range set.Workers() {
		if name == "broker" {
			continue
		}
		var list []worker.Step
		for x := range steps[name] {
			list = append(list, step{x, &s.open})
		}
		s.StartWorker(worker.Config{Name: name, Version: "test", DrainTimeout: time.Second}, list...)
	}
}

// awaitWaiting waits until a number of operations wait at the gate.
func (s *small) awaitWaiting(n int) {
	s.t.Helper()
	s.await(fmt.Sprintf("%d operations to wait", n), func() bool {
		var found int
		err := s.db.GetContext(s.t.Context(), &found, `SELECT count(*) FROM orchestrator.operations WHERE state = 'in progress' AND message = 'closed'`)
		return err == nil && found == n
	})
}

// pass opens the gate until the last operation of each instance has succeeded.
func (s *small) pass(platform *osbclient.Client, orders []*harness.Order) {
	s.t.Helper()
	s.open.Store(true)
	defer s.open.Store(false)
	for _, o := range orders {
		s.await("instance "+o.InstanceID, func() bool {
			last, err := platform.LastOperation(s.t.Context(), o.InstanceID, "")
			if osbclient.IsGone(err) {
				return true
			}
			if err != nil || last.State == osb.StateFailed {
				s.t.Fatalf("instance %s: %+v, %v", o.InstanceID, last, err)
			}
			return last.State == osb.StateSucceeded
		})
	}
}
