package kubetest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Deployments simulates the controllers and nodes for the Deployments of one namespace: it marks them ready when they are created or
// changed, or not ready while they are held.
type Deployments struct {
	t         testing.TB
	client    client.WithWatch
	namespace string
	// mu is held during a pass, so that Hold and Release take effect before they return.
	mu sync.Mutex
	// all reports whether Deployments are held; except contains the names with the opposite state.
	all    bool
	except map[string]bool
}

// Deployments starts marking the Deployments of a namespace until the test ends.
func (c *Cluster) Deployments(t testing.TB, namespace string) *Deployments {
	t.Helper()
	cl, err := client.NewWithWatch(c.Config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d := &Deployments{t: t, client: cl, namespace: namespace, except: map[string]bool{}}
	// The test's context ends before its cleanups run, which may still wait for a Deployment.
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return d
}

// Hold marks these Deployments not ready until Release. Without names it holds all, including future ones. When it returns, the existing
// ones are marked.
func (d *Deployments) Hold(names ...string) {
	d.t.Helper()
	d.change(true, names)
}

// Release marks these Deployments ready again. Without names it releases all. When it returns, the existing ones are marked.
func (d *Deployments) Release(names ...string) {
	d.t.Helper()
	d.change(false, names)
}

// change sets the held Deployments and marks them immediately.
func (d *Deployments) change(hold bool, names []string) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(names) == 0 {
		d.all = hold
		clear(d.except)
	}
	for _, n := range names {
		d.except[n] = hold != d.all
	}
	// Another client may write to a Deployment concurrently.
	for range 10 {
		err := d.mark(context.WithoutCancel(d.t.Context()))
		if err == nil {
			return
		}
		if !apierrors.IsConflict(err) {
			d.t.Errorf("mark the Deployments of %s: %v", d.namespace, err)
			return
		}
	}
	d.t.Errorf("mark the Deployments of %s: always a conflict", d.namespace)
}

// run marks Deployments after each change. A test may stop the kube-apiserver, so it retries after errors.
func (d *Deployments) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := d.follow(ctx); err != nil && ctx.Err() == nil {
			d.t.Logf("mark the Deployments of %s: %v, trying again", d.namespace, err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
}

// follow marks Deployments until the watch ends.
func (d *Deployments) follow(ctx context.Context) error {
	w, err := d.client.Watch(ctx, &appsv1.DeploymentList{}, client.InNamespace(d.namespace))
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		// Start the watch before the first pass, so that no change is missed in between.
		d.mu.Lock()
		err := d.mark(ctx)
		d.mu.Unlock()
		if err != nil && !apierrors.IsConflict(err) {
			return err
		}
		// After a conflict, the event of the other change triggers another pass.
		if e, open := <-w.ResultChan(); !open || e.Type == watch.Error {
			return nil
		}
	}
}

// mark sets the status of every Deployment.
func (d *Deployments) mark(ctx context.Context) error {
	var list appsv1.DeploymentList
	if err := d.client.List(ctx, &list, client.InNamespace(d.namespace)); err != nil {
		return err
	}
	var errs []error
	for i := range list.Items {
		dep := &list.Items[i]
		status := statusOf(dep, d.all == d.except[dep.Name])
		if equality.Semantic.DeepEqual(dep.Status, status) {
			continue
		}
		dep.Status = status
		// This is the name of the controller that writes the status in a real cluster.
		err := d.client.Status().Update(ctx, dep, client.FieldOwner("kube-controller-manager"))
		if err = client.IgnoreNotFound(err); apierrors.IsConflict(err) {
			return err
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// statusOf returns the status that the Deployment controller writes if all pods run, or none.
func statusOf(d *appsv1.Deployment, ready bool) appsv1.DeploymentStatus {
	replicas := ptr.Deref(d.Spec.Replicas, 1)
	s := appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: replicas, UpdatedReplicas: replicas}
	available := condition(appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable")
	progressing := condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated")
	if ready {
		s.ReadyReplicas, s.AvailableReplicas = replicas, replicas
		available = condition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable")
		progressing.Reason = "NewReplicaSetAvailable"
	} else {
		s.UnavailableReplicas = replicas
	}
	for _, c := range []appsv1.DeploymentCondition{available, progressing} {
		for _, old := range d.Status.Conditions {
			if old.Type == c.Type && old.Status == c.Status && old.Reason == c.Reason {
				c = old
			}
		}
		s.Conditions = append(s.Conditions, c)
	}
	return s
}

func condition(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason string) appsv1.DeploymentCondition {
	now := metav1.Now()
	return appsv1.DeploymentCondition{Type: kind, Status: status, Reason: reason, LastUpdateTime: now, LastTransitionTime: now}
}
