package kubetest_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

const watched = "somebody-watched"

var shared = kubetest.Shared{Options: []kubetest.Option{kubetest.Audit(watched)}}

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

func TestStart_Namespaces_Exist(t *testing.T) {
	c := shared.Cluster(t).Client(t, client.Options{})
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "default"}, new(corev1.Namespace)))
}

// namespace creates a namespace for this test.
func namespace(t *testing.T, c client.Client) string {
	t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "kubetest-"}}
	require.NoError(t, c.Create(t.Context(), n))
	return n.Name
}
