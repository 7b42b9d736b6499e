package compose

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/broker"
	"github.com/kyma-project/keb/services/orchestrator"
	stepworkers "github.com/kyma-project/keb/services/step-workers"
	"github.com/kyma-project/keb/test/internal/committed"
	"github.com/kyma-project/keb/test/internal/harness"
)

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }

// refusals collects what the log says that the server has refused.
type refusals struct {
	slog.Handler
	mu   *sync.Mutex
	seen *[]string
}

// Handle notes a refusal and logs everything.
func (r refusals) Handle(ctx context.Context, record slog.Record) error {
	record.Attrs(func(a slog.Attr) bool {
		if text := a.Value.String(); strings.Contains(strings.ToLower(text), "permissions violation") {
			r.mu.Lock()
			*r.seen = append(*r.seen, text)
			r.mu.Unlock()
		}
		return true
	})
	return r.Handler.Handle(ctx, record)
}

// WithAttrs keeps collecting.
func (r refusals) WithAttrs(attrs []slog.Attr) slog.Handler {
	return refusals{r.Handler.WithAttrs(attrs), r.mu, r.seen}
}

// TestTheWholeSystemWorksWithTheUsersOfTheBus runs every service and worker with the user that it has in an installation, provisions a
// runtime and removes it. Nothing that they do may be refused.
func TestTheWholeSystemWorksWithTheUsersOfTheBus(t *testing.T) {
	url := committed.NATS(t, root).ClientURL()
	databaseURL := testkit.Postgres(t, func(ctx context.Context, db *sqlx.DB) error { return broker.Migrate(ctx, db) })
	var mu sync.Mutex
	var refused []string
	log := slog.New(refusals{testkit.Logger(t).Handler(), &mu, &refused})
	keys, err := seal.ParseKeyring("k1:" + seal.NewKey())
	require.NoError(t, err)
	connect := func(user string, guest bool) *bus.Bus {
		t.Helper()
		b, err := bus.Connect(t.Context(), bus.Config{URL: url, Name: user, User: user, Password: committed.Password(user), Guest: guest}, bus.Deps{Log: log})
		require.NoError(t, err)
		t.Cleanup(b.Close)
		return b
	}
	group := service.NewGroup(log)

	simulated := httptest.NewUnstartedServer(nil)
	external, err := landscape.New(landscape.Config{ExternalURL: "http://" + simulated.Listener.Addr().String()}, landscape.Deps{Log: log})
	require.NoError(t, err)
	simulated.Config.Handler = external.Handler()
	simulated.Start()
	t.Cleanup(func() { simulated.Close(); _ = external.Close() })
	group.Add("landscape", external.Run)

	// The workers come first, and wait.
	services, err := stepworkers.All(simulated.URL, stepworkers.Options{Fast: true})
	require.NoError(t, err)
	for _, sv := range services {
		b := connect(event.WorkerUserName(sv.Name), true)
		w, err := worker.New(worker.Config{Name: sv.Name, Version: "1.0.0", Questions: sv.Questions},
			worker.Deps{Bus: b, StageMemory: stagemem.NewGuest(b.JetStream(), keys), Log: log}, sv.Steps...)
		require.NoError(t, err)
		group.Add(sv.Name, w.Run)
	}
	ob := connect(event.UserOrchestrator, false)
	oc := service.Defaults[orchestrator.Config]()
	oc.Database.URL = databaseURL
	o, err := orchestrator.New(t.Context(), oc,
		orchestrator.Deps{Bus: ob, Memory: stagemem.New(ob.JetStream(), &seal.Keyring{}), Log: log})
	require.NoError(t, err)
	t.Cleanup(func() { _ = o.Close() })
	group.Add("orchestrator", o.Run)
	cfg := service.Defaults[broker.Config]()
	cfg.Database.URL = databaseURL
	cfg.User, cfg.Password, cfg.SealKeys, cfg.RetryAfter = "keb", "keb", "k1:"+seal.NewKey(), time.Second
	br, err := broker.New(t.Context(), cfg, broker.Deps{Bus: connect(event.UserBroker, true), Log: log})
	require.NoError(t, err)
	t.Cleanup(func() { _ = br.Close() })
	group.Add("broker", br.Run)
	platform := httptest.NewServer(br.Handler())
	t.Cleanup(platform.Close)
	operator := httptest.NewServer(o.Handler())
	t.Cleanup(operator.Close)

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- group.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the services end with %v", err)
		}
	})
	sys := harness.Connect(t, harness.Remote{
		OSBAddr: platform.Listener.Addr().String(), OperatorAddr: operator.Listener.Addr().String(),
		LandscapeAddr: simulated.Listener.Addr().String(), Password: "keb",
	})
	order := harness.Azure()
	sys.PollEnd(order, sys.Provision(order), osb.StateSucceeded, 2*time.Minute)
	// The broker asks the worker runtime.
	if _, err := sys.Platform().Bind(t.Context(), order.InstanceID, "binding", osbclient.Bind{ServiceID: harness.ServiceID, PlanID: order.PlanID}); err != nil {
		t.Errorf("bind: %v", err)
	}
	// The orchestrator asks the broker, and the worker hyperscaler for the maintenance window, which may be far away.
	upgrade(t, sys, false, func(state string) bool { return state == "succeeded" })
	upgrade(t, sys, true, func(state string) bool { return state == "in progress" || state == "succeeded" })
	sys.PollEnd(order, sys.Deprovision(order), osb.StateSucceeded, 2*time.Minute)
	mu.Lock()
	defer mu.Unlock()
	if len(refused) > 0 {
		t.Errorf("the server has refused what the system needs: %v", refused)
	}
}

// upgrade starts an orchestration of all runtimes and waits for its state.
func upgrade(t *testing.T, sys *harness.System, inWindow bool, reached func(state string) bool) {
	t.Helper()
	body := fmt.Sprintf(`{"targets": {"include": [{"target": "all"}]}, "strategy": {"type": "parallel", "schedule": "immediate", "maintenanceWindow": %t, "parallel": {"workers": 1}}}`, inWindow)
	answer, err := sys.HTTP.Post("http://"+sys.OperatorAddr+"/upgrade/cluster", "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	var started struct{ OrchestrationID, Error string }
	if err := json.NewDecoder(answer.Body).Decode(&started); err != nil || answer.StatusCode != http.StatusAccepted {
		t.Fatalf("upgrade: %s, %v: %s", answer.Status, err, started.Error)
	}
	state := ""
	testkit.Eventually(t, 2*time.Minute, "the state of the upgrade", func() bool {
		state = harness.Get[struct{ State string }](sys, "http://"+sys.OperatorAddr+"/orchestrations/"+started.OrchestrationID).State
		return reached(state)
	})
}
