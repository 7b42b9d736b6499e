// Package btpmanager_test shows that KEB and the BTP manager fit together: a whole KEB brings the credentials into a runtime that is a
// real kube-apiserver, and the built BTP manager works with them there.
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
