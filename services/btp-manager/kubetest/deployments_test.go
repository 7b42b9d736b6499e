package kubetest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestDeployments_Held_AreNotReady(t *testing.T) {
	cluster := shared.Cluster(t)
	c := cluster.Client(t, client.Options{})
	ns := namespace(t, c)
	deployments := cluster.Deployments(t, ns)

	d := deployment(ns, "web")
	create(t, c, d)
	waitReady(t, c, d)

	d.Spec.Replicas = ptr.To[int32](3)
	require.NoError(t, c.Update(t.Context(), d))
	waitReady(t, c, d)
	if d.Status.ReadyReplicas != 3 {
		t.Errorf("%d replicas are ready, want 3", d.Status.ReadyReplicas)
	}

	deployments.Hold()
	get(t, c, d)
	if isReady(d) || d.Status.ReadyReplicas != 0 {
		t.Errorf("a held Deployment is ready: %+v", d.Status)
	}
	late := deployment(ns, "late")
	create(t, c, late)
	eventually(t, "the late Deployment is looked at", func() bool {
		get(t, c, late)
		return late.Status.ObservedGeneration == late.Generation
	})
	if isReady(late) {
		t.Error("a Deployment that came while all are held is ready")
	}

	deployments.Release("late")
	get(t, c, d)
	get(t, c, late)
	if isReady(d) || !isReady(late) {
		t.Errorf("after releasing one: web ready %v, late ready %v", isReady(d), isReady(late))
	}
	deployments.Release()
	if get(t, c, d); !isReady(d) {
		t.Errorf("a released Deployment is not ready: %+v", d.Status)
	}
	deployments.Hold("web")
	get(t, c, d)
	get(t, c, late)
	if isReady(d) || !isReady(late) {
		t.Errorf("after holding one: web ready %v, late ready %v", isReady(d), isReady(late))
	}
}

func deployment(ns, name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.com/none:1"}}},
			},
		},
	}
}

func create(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	require.NoError(t, c.Create(t.Context(), o))
}

func get(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), o))
}

// isReady reports whether the status is that of the newest specification and has both conditions.
func isReady(d *appsv1.Deployment) bool {
	have := map[appsv1.DeploymentConditionType]bool{}
	for _, c := range d.Status.Conditions {
		have[c.Type] = c.Status == corev1.ConditionTrue
	}
	return d.Status.ObservedGeneration == d.Generation && have[appsv1.DeploymentAvailable] && have[appsv1.DeploymentProgressing]
}

func waitReady(t *testing.T, c client.Client, d *appsv1.Deployment) {
	t.Helper()
	eventually(t, "the Deployment is ready", func() bool {
		get(t, c, d)
		return isReady(d)
	})
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 90*time.Second, true,
		func(context.Context) (bool, error) { return done(), nil })
	require.NoErrorf(t, err, "wait until %s", what)
}
