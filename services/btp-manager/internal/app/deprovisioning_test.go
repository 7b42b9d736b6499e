package app_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

// foreign is a finalizer that no process here removes.
const foreign = "example.com/stuck"

// bindingSecret creates the Secret of a binding.
func (s *system) bindingSecret(namespace, name string, owner client.Object) *corev1.Secret {
	s.t.Helper()
	o := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if owner != nil {
		gvk := owner.GetObjectKind().GroupVersionKind()
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: owner.GetName(), UID: owner.GetUID()}}
	}
	s.create(o)
	s.t.Cleanup(func() { _ = s.Delete(s.t.Context(), o) })
	return o
}

// nothingLeft fails the test if an object with our label, or a Secret that only deprovisioning removes, is left.
func (s *system) nothingLeft() {
	s.t.Helper()
	for _, o := range s.labelled(s.t.Context()) {
		s.t.Errorf("%s %s/%s is left", o.GetObjectKind().GroupVersionKind().Kind, o.GetNamespace(), o.GetName())
	}
	for _, name := range []string{"ca-server-cert", "webhook-server-cert", "sap-btp-service-operator"} {
		if s.exists(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: kymaSystem, Name: name}}) {
			s.t.Errorf("the Secret %s is left", name)
		}
	}
	if !s.exists(secret()) {
		s.t.Error("the broker's Secret is gone")
	}
}

// history collects the states of a BtpOperator, in order, until it is gone.
func (s *system) history(o *v1alpha1.BtpOperator) func() []string {
	s.t.Helper()
	c, err := client.NewWithWatch(s.cluster.Config, client.Options{Scheme: s.Scheme()})
	if err != nil {
		s.t.Fatal(err)
	}
	// A watch without a start version may begin in the past.
	now, named := new(v1alpha1.BtpOperatorList), client.MatchingFields{"metadata.name": o.Name}
	if err := c.List(s.t.Context(), now, named); err != nil {
		s.t.Fatal(err)
	}
	w, err := c.Watch(s.t.Context(), new(v1alpha1.BtpOperatorList), named, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: now.ResourceVersion}})
	if err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan []string, 1)
	go func() {
		defer w.Stop()
		var seen []string
		note := func(cr *v1alpha1.BtpOperator) {
			if len(cr.Status.Conditions) == 0 {
				return
			}
			at := fmt.Sprintf("%s/%s", cr.Status.State, cr.Status.Conditions[0].Reason)
			if len(seen) == 0 || seen[len(seen)-1] != at {
				seen = append(seen, at)
			}
		}
		for i := range now.Items {
			note(&now.Items[i])
		}
		for e := range w.ResultChan() {
			if cr, ok := e.Object.(*v1alpha1.BtpOperator); ok {
				note(cr)
			}
			if e.Type == "DELETED" {
				break
			}
		}
		ended <- seen
	}()
	return func() []string {
		select {
		case seen := <-ended:
			return seen
		case <-time.After(waitTimeout):
			s.t.Fatalf("BtpOperator %s did not go", o.Name)
			return nil
		}
	}
}

func (s *system) wantHistory(of func() []string, want ...string) {
	s.t.Helper()
	if got := strings.Join(of(), " "); got != strings.Join(want, " ") {
		s.t.Errorf("states %s, want %s", got, strings.Join(want, " "))
	}
}

const (
	ready = "Ready/ReconcileSucceeded"
	hard  = "Deleting/HardDeleting"
	soft  = "Deleting/SoftDeleting"
)

func TestHardDelete_AllDeleted_LeavesNothing(t *testing.T) {
	s := newSystem(t)
	s.start()
	o := s.provisioned()
	s.namespace("users")
	s.serviceInstance("users", "an-instance")
	s.serviceBinding("users", "a-binding")
	states := s.history(o)
	s.delete(o)
	s.wantHistory(states, ready, hard)
	s.nothingLeft()
}

func TestHardDelete_Operand_KeepsRunning(t *testing.T) {
	s := newSystem(t)
	s.start()
	o := s.provisioned()
	s.namespace("users")
	instance, binding := s.serviceInstance("users", "an-instance", foreign), s.serviceBinding("users", "a-binding", foreign)
	states := s.history(o)
	s.delete(o)
	s.until(o, "the binding is marked", func() bool {
		return s.exists(binding) && binding.GetDeletionTimestamp() != nil && o.Status.Deprovisioning != nil
	})
	if s.exists(instance); instance.GetDeletionTimestamp() != nil {
		t.Error("the instance is being deleted while a binding is left")
	}
	if !s.exists(deployment()) {
		t.Error("the operand is gone while it is to clean up")
	}
	s.until(o, "the status counts what is left", func() bool {
		d := o.Status.Deprovisioning
		return d != nil && d.ServiceInstances == 1 && d.ServiceBindings == 1
	})
	s.unstick(binding)
	testkit.Eventually(t, waitTimeout, "the instance is marked", func() bool { return s.exists(instance) && instance.GetDeletionTimestamp() != nil })
	s.unstick(instance)
	s.wantHistory(states, ready, hard)
	s.nothingLeft()
}

// unstick removes the finalizers, like the operand.
func (s *system) unstick(o client.Object) {
	s.t.Helper()
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
	if err := s.Patch(s.t.Context(), o, patch); err != nil {
		s.t.Fatal(err)
	}
}

func TestHardDelete_Deadline_StartsSoftDelete(t *testing.T) {
	s := newSystem(t)
	s.settings.HardDeleteTimeout = time.Second
	s.start()
	o := s.provisioned()
	s.namespace("users")
	s.serviceInstance("users", "an-instance", foreign)
	binding := s.serviceBinding("users", "a-binding", foreign)
	made := s.bindingSecret("users", "a-binding", binding)
	states := s.history(o)
	s.delete(o)
	s.wantHistory(states, ready, hard, soft)
	s.nothingLeft()
	if s.exists(made) {
		t.Error("the binding's Secret is left")
	}
}

func TestDeletion_ServiceInstancesExist_IsBlocked(t *testing.T) {
	for name, end := range map[string]func(s *system, o *v1alpha1.BtpOperator, instance, binding client.Object){
		"until the user sets the label force-delete": func(s *system, o *v1alpha1.BtpOperator, _, _ client.Object) {
			patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"force-delete":"true"}}}`))
			if err := s.Patch(s.t.Context(), o, patch); err != nil {
				s.t.Fatal(err)
			}
		},
		"until the last one is gone": func(s *system, _ *v1alpha1.BtpOperator, instance, binding client.Object) {
			s.delete(binding)
			s.delete(instance)
		},
		"until the last binding is gone": func(s *system, _ *v1alpha1.BtpOperator, instance, binding client.Object) {
			s.delete(instance)
			s.delete(binding)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t)
			s.settings.BlockDeletion = true
			s.start()
			o := s.provisioned()
			s.namespace("users")
			instance, binding := s.serviceInstance("users", "an-instance"), s.serviceBinding("users", "a-binding")
			states := s.history(o)
			s.delete(o)
			message := s.await(o, v1alpha1.StateWarning, v1alpha1.ReasonNotCleaned)
			for _, want := range []string{"1 service instance", "1 service binding", "users/an-instance", "force-delete"} {
				if !strings.Contains(message, want) {
					t.Errorf("message %q does not contain %q", message, want)
				}
			}
			s.delete(deployment())
			testkit.Eventually(t, waitTimeout, "the operand comes back while deletion is blocked", func() bool { return s.exists(deployment()) })
			if !s.exists(instance) || !s.exists(binding) {
				t.Error("something was deleted while deletion is blocked")
			}
			end(s, o, instance, binding)
			s.wantHistory(states, ready, "Warning/ServiceInstancesAndBindingsNotCleaned", hard)
			s.nothingLeft()
		})
	}
}

func TestDeletion_OperandFirst_RemovesOperandFirst(t *testing.T) {
	s := newSystem(t)
	s.settings.OperandFirst = true
	s.start()
	o := s.provisioned()
	s.namespace("users")
	instance := s.serviceInstance("users", "an-instance", foreign)
	s.delete(o)
	testkit.Eventually(t, waitTimeout, "the instance is marked", func() bool { return s.exists(instance) && instance.GetDeletionTimestamp() != nil })
	if s.exists(deployment()) {
		t.Error("the operand's Deployment is there during the hard delete")
	}
	s.unstick(instance)
	s.awaitGone(o)
	s.nothingLeft()
}

func TestHardDelete_Restart_KeepsDeadline(t *testing.T) {
	s := newSystem(t)
	s.start()
	o := s.provisioned()
	s.namespace("users")
	s.serviceInstance("users", "an-instance", foreign)
	s.delete(o)
	s.until(o, "the hard delete has begun", func() bool { return o.Status.Deprovisioning != nil })
	before := o.Status.Deprovisioning.HardDeleteDeadline
	if want := o.Status.Deprovisioning.StartedAt.Add(s.settings.HardDeleteTimeout); !before.Time.Equal(want) {
		t.Errorf("deadline %s, want %s", before, want)
	}
	s.stop()
	ahead := time.Now().Add(s.settings.HardDeleteTimeout)
	s.now = func() time.Time { return ahead }
	s.start()
	s.awaitGone(o)
	s.nothingLeft()
	if !strings.Contains(s.log.String(), "HardDeleteTimedOut") {
		t.Error("the deadline did not end the hard delete")
	}
}

func TestDeletion_DefinitionsMissing_Completes(t *testing.T) {
	s := newSystem(t)
	s.start()
	s.create(secret("clientid", "-"))
	o := s.operator("btpoperator")
	s.await(o, v1alpha1.StateError, v1alpha1.ReasonInvalidSecret)
	s.delete(o)
	s.awaitGone(o)
	s.nothingLeft()
}

// The user must see the cause of the wait: only a user who knows the finalizer can act.
func TestRemoval_ObjectWithFinalizer_IsNamed(t *testing.T) {
	s := newSystem(t)
	s.start()
	o := s.provisioned()
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: kymaSystem, Name: "sap-btp-operator-config"}}
	s.patch(held, `{"metadata":{"finalizers":["`+foreign+`"]}}`)
	states := s.history(o)
	s.delete(o)
	s.until(o, "the message names the object and the finalizer", func() bool {
		return len(o.Status.Conditions) == 1 &&
			containsAll(o.Status.Conditions[0].Message, "ConfigMap kyma-system/sap-btp-operator-config", "waits for "+foreign)
	})
	s.unstick(held)
	s.wantHistory(states, ready, hard)
	s.nothingLeft()
}
