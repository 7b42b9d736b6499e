package test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

// cmd/keb/internal/up tests all variables; this test checks some in a running system.
func TestUp_VariablesOfTheServices_Count(t *testing.T) {
	t.Parallel()
	rate := filepath.Join(t.TempDir(), "rate")
	require.NoError(t, os.WriteFile(rate, []byte("7\n"), 0o600))
	metrics := testkit.Addr(t)
	sys := harness.Start(t, harness.Options{Env: []string{
		"KEB_REQUIRE_ORG_SPACE=true", "KEB_METRICS_ADDR=" + metrics, "KEB_EDP_ENVIRONMENT=from-a-variable", "KEB_WORKER_RATE_LIMIT_FILE=" + rate,
	}})
	o := harness.Azure()
	_, err := sys.Platform().Provision(t.Context(), o.InstanceID, o.Body())
	if e, ok := errors.AsType[*osb.Error](err); !ok || e.Status != http.StatusBadRequest || !strings.Contains(e.Description, "organization_guid") {
		t.Errorf("an order without organization: %v", err)
	}
	response, err := sys.HTTP.Get("http://" + metrics + "/readyz")
	require.NoError(t, err)
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("/readyz at KEB_METRICS_ADDR: %d, %v", response.StatusCode, err)
	}
}

func TestUp_OwnVariable_IsRejectedWithFlag(t *testing.T) {
	t.Parallel()
	sys := harness.New(t, harness.Options{Env: []string{"KEB_NATS_USER=team", "KEB_LANDSCAPE_DATA_DIR=/elsewhere"}})
	refuse(t, sys, "KEB_NATS_USER: is not used with keb up", "--nats-addr", "KEB_LANDSCAPE_DATA_DIR: is not used with keb up", "--data-dir")
}

func TestNATS_AfterARestart_HasTheSameAddress(t *testing.T) {
	t.Parallel()
	sys := harness.Start(t, harness.Options{})
	outside, err := nats.Connect(sys.NATS(), nats.MaxReconnects(-1))
	require.NoError(t, err)
	t.Cleanup(outside.Close)
	sys.Kill()
	sys.Start()
	testkit.Eventually(t, limit, "the connection of a worker in another process", func() bool { return outside.Stats().Reconnects > 0 && outside.IsConnected() })
}
