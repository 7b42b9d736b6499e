// Package btpmanager_test tests KEB against a real kube-apiserver. A complete KEB writes the credentials into a runtime, where the built BTP
// manager uses them. The simulated control plane answers requests like the kube-apiserver.
package btpmanager_test

import (
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kyma-project/keb/services/btp-manager/kubetest"
	"github.com/kyma-project/keb/test/internal/harness"
)

// limit is how long anything may take before a test gives up. It is generous: a busy machine must not fail a test.
const limit = 90 * time.Second

var shared = kubetest.Shared{Options: []kubetest.Option{kubetest.NoWebhooks}}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // that of the tests' own clients, which complain when there is none
	os.Exit(harness.Clean(shared.Main(m)))
}
