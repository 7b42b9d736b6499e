package kubetest_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

func TestFull_Objects_AreReconciled(t *testing.T) {
	cluster := kubetest.Full(t)
	c := cluster.Client(t, client.Options{})
	ns := namespace(t, c)

	d := deployment(ns, "web")
	create(t, c, d)
	waitReady(t, c, d)
	if d.Status.ReadyReplicas != 1 {
		t.Errorf("%d replicas are ready, want 1", d.Status.ReadyReplicas)
	}

	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "once"}}
	job.Spec.Template.Spec = d.Spec.Template.Spec
	job.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	create(t, c, job)
	eventually(t, "the Job is complete", func() bool {
		get(t, c, job)
		return job.Status.Succeeded == 1
	})

	if pods := cluster.Kubectl(t, "get", "pods", "-n", ns, "-l", "app=web", "--no-headers"); !strings.Contains(pods, "Running") {
		t.Errorf("kubectl shows %q", pods)
	}
	cluster.Kubectl(t, "delete", "deployment", "web", "-n", ns, "--wait=false")
	eventually(t, "its pods are gone", func() bool {
		var pods corev1.PodList
		require.NoError(t, c.List(t.Context(), &pods, client.InNamespace(ns), client.MatchingLabels{"app": "web"}))
		return len(pods.Items) == 0
	})

	gone := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	require.NoError(t, c.Delete(t.Context(), gone))
	eventually(t, "the namespace is gone", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKey{Name: ns}, gone))
	})
}

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
