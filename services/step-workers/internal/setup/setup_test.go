package setup_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/avs"
	"github.com/kyma-project/keb/services/step-workers/hyperscaler"
	"github.com/kyma-project/keb/services/step-workers/internal/setup"
	"github.com/kyma-project/keb/services/step-workers/kyma"
	"github.com/kyma-project/keb/services/step-workers/lifecyclemanager"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
	"github.com/kyma-project/keb/services/step-workers/reconciler"
)

func TestWrongEnvironmentIsRefusedAllAtOnceByName(t *testing.T) {
	t.Setenv("KEB_PROVISIONER_URL", "nowhere")
	t.Setenv("KEB_PROVISIONER_POLL_INTERVAL", "0s")
	t.Setenv("KEB_RUNTIME_KUBERNETES_VERSION", "")
	_, err := setup.Steps(provisioner.Steps)(t.Context(), worker.Env{})
	for _, name := range []string{"KEB_PROVISIONER_URL", "KEB_PROVISIONER_POLL_INTERVAL"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want a word about %s", err, name)
		}
	}
}

// A deployed worker must not look for a required system on its own machine.
func TestSteps_RequiredSystemWithoutURL_NamesTheVariable(t *testing.T) {
	for variable, build := range map[string]func(context.Context) error{
		"KEB_PROVISIONER_URL":                           with(provisioner.Steps),
		"KEB_GARDENER_URL (or KEB_GARDENER_KUBECONFIG)": with(hyperscaler.Steps),
		"KEB_KCP_URL (or KEB_KCP_KUBECONFIG)":           with(lifecyclemanager.Steps),
		"KEB_KYMA_ARTIFACTS_URL":                        with(kyma.Steps),
		"KEB_RECONCILER_URL":                            with(reconciler.Steps),
	} {
		if err := build(t.Context()); err == nil || !strings.Contains(err.Error(), variable+" is not set") {
			t.Errorf("%s: %v", variable, err)
		}
	}
}

func with[C any](steps func(C, extclient.Deps) ([]worker.Step, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := setup.Steps(steps)(ctx, worker.Env{})
		return err
	}
}

func TestSecretsComeFromFilesToo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("from-file\n"), 0o600))
	t.Setenv("KEB_AVS_PASSWORD_FILE", file)
	t.Setenv("KEB_AVS_TRIAL_PARENT_ID", "42")
	var got avs.Config
	_, err := setup.Steps(func(c avs.Config, _ extclient.Deps) ([]worker.Step, error) {
		got = c
		return nil, errors.New("enough")
	})(t.Context(), worker.Env{})
	if err == nil || err.Error() != "enough" {
		t.Fatal(err)
	}
	if got.Password != "from-file" {
		t.Errorf("the password is %q", got.Password)
	}
	if got.Trial.ParentID != 42 || got.ParentID != 0 {
		t.Errorf("places %+v, %d", got.Trial, got.ParentID)
	}
}

func TestCallsToExternalSystemsAreCountedWhereTheWorkerServesMetrics(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	registry := prometheus.NewRegistry()
	call := func(_ avs.Config, deps extclient.Deps) ([]worker.Step, error) {
		c, err := extclient.New(extclient.Config{System: "avs", BaseURL: server.URL}, nil, deps)
		if err != nil {
			return nil, err
		}
		return nil, c.Do(t.Context(), extclient.Request{Method: http.MethodGet, Route: "/", Accept: []int{http.StatusNotFound}}, nil)
	}
	if _, err := setup.Steps(call)(t.Context(), worker.Env{Registerer: registry}); err != nil {
		t.Fatal(err)
	}
	if n, err := testutil.GatherAndCount(registry, "keb_external_requests_total"); n != 1 || err != nil {
		t.Errorf("%d metrics of calls, %v; want 1", n, err)
	}
}
