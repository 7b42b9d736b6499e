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

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
	stepworkers "github.com/kyma-project/keb/services/step-workers"
	"github.com/kyma-project/keb/test/internal/harness"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

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

// TestUsers_WholeSystem_Works runs every service and worker with the user that it has in an installation, provisions a
// runtime and removes it. Nothing that they do may be refused.
func TestUsers_WholeSystem_Works(t *testing.T) {
	var mu sync.Mutex
	var refused []string
	log := slog.New(refusals{testkit.Logger(t).Handler(), &mu, &refused})
	services := harness.NewServices(t, root, log)

	simulated := httptest.NewUnstartedServer(nil)
	external, err := landscape.New(landscape.Config{ExternalURL: "http://" + simulated.Listener.Addr().String()}, landscape.Deps{Log: log})
	require.NoError(t, err)
	simulated.Config.Handler = external.Handler()
	simulated.Start()
	t.Cleanup(func() { simulated.Close(); _ = external.Close() })
	services.Run("landscape", external.Run)

	// The workers come first, and wait.
	workers, err := stepworkers.All(simulated.URL, stepworkers.Options{Fast: true})
	require.NoError(t, err)
	for _, w := range workers {
		services.StartWorker(worker.Config{Name: w.Name, Version: "1.0.0", Questions: w.Questions}, w.Steps...)
	}
	operator, _ := services.StartOrchestrator("")
	services.Broker.RetryAfter = time.Second
	osbAddr, _ := services.StartBroker()
	sys := harness.Connect(t, harness.Remote{
		OSBAddr: osbAddr, OperatorAddr: operator, LandscapeAddr: simulated.Listener.Addr().String(), Password: "keb",
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
