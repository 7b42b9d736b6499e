package kubetest_test

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

var shared kubetest.Shared

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

func TestAClusterHasItsNamespaces(t *testing.T) {
	c := shared.Cluster(t).Client(t, client.Options{})
	if err := c.Get(t.Context(), client.ObjectKey{Name: "default"}, new(corev1.Namespace)); err != nil {
		t.Fatal(err)
	}
}
