package kubetest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

func TestKubectl_User_HasOnlyItsRights(t *testing.T) {
	cluster := kubetest.Full(t)
	stranger := cluster.Kubeconfig(t, cluster.As(t, "stranger"))
	call := kubetest.KubectlCall{Kubeconfig: stranger, Args: []string{"create", "-f", "-"}, Stdin: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"default"}}`}
	if out, err := cluster.RunKubectl(context.Background(), call); err == nil || !strings.Contains(err.Error(), `User "stranger" cannot create`) {
		t.Errorf("kubectl as a stranger: %v, printed %q", err, out)
	}
	call.Kubeconfig = ""
	if out, err := cluster.RunKubectl(context.Background(), call); err != nil || !strings.Contains(out, "created") {
		t.Errorf("kubectl as administrator: %v, printed %q", err, out)
	}
}
