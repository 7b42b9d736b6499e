package e2e_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

const foreign = "example.com/somebody"

// crash kills a BTP Manager and starts another one, perhaps with other flags. The status is the same afterwards, its deadlines above
// all; only the message may tell more than before. With meanwhile, which happens while none runs, the test says what comes of it.
func (s *system) crash(p *process, o *v1alpha1.BtpOperator, meanwhile func(), flags ...string) *process {
	s.t.Helper()
	p.kill()
	if !s.exists(o) {
		s.t.Fatal("the BtpOperator is gone")
	}
	before := o.DeepCopy()
	if meanwhile != nil {
		meanwhile()
	}
	p = s.start(flags...)
	p.awaitPass()
	if meanwhile != nil {
		return p
	}
	if !s.exists(o) {
		s.t.Fatal("the BtpOperator is gone")
	}
	if diff := cmp.Diff(before.Status, o.Status, cmpopts.IgnoreFields(metav1.Condition{}, "Message")); diff != "" {
		s.t.Errorf("status (-before the crash +after it):\n%s", diff)
	}
	return p
}

func TestProvision_Killed_ReachesSameState(t *testing.T) {
	s := newSystem(t)
	t.Run("Processing", func(t *testing.T) {
		s := s.anew(t)
		s.deployments.Hold()
		p := s.start()
		s.create(secret())
		o := s.operator()
		s.await(o, v1alpha1.ReasonInitialized)
		testkit.Eventually(t, waitTimeout, "the message names what is not ready", func() bool {
			return s.exists(o) && strings.Contains(o.Status.Conditions[0].Message, "Deployment "+kymaSystem+"/"+operandPod)
		})
		s.crash(p, o, nil, "--ready-timeout=1h")
		s.deployments.Release()
		s.await(o, v1alpha1.ReasonReconcileSucceeded)
	})
	t.Run("Processing, and the time is over meanwhile", func(t *testing.T) {
		s := s.anew(t)
		s.deployments.Hold()
		p := s.start()
		s.create(secret())
		o := s.operator()
		s.await(o, v1alpha1.ReasonInitialized)
		s.crash(p, o, func() {
			s.writeStatus(o, func() { o.Status.ReadyDeadline = past(o.Status.ReadyDeadline) })
		}, "--ready-timeout=1h")
		s.await(o, v1alpha1.ReasonChartInstallFailed)
		s.deployments.Release()
		s.await(o, v1alpha1.ReasonReconcileSucceeded)
	})
	t.Run("Error, for want of the Secret", func(t *testing.T) {
		s := s.anew(t)
		p := s.start()
		o := s.operator()
		s.await(o, v1alpha1.ReasonMissingSecret)
		p = s.crash(p, o, nil)
		s.crash(p, o, func() { s.create(secret()) })
		s.await(o, v1alpha1.ReasonReconcileSucceeded)
	})
	t.Run("Ready, and its Deployment is deleted meanwhile", func(t *testing.T) {
		s := s.anew(t)
		p := s.start()
		o := s.provisioned()
		p = s.crash(p, o, nil)
		s.crash(p, o, func() { s.delete(deployment()) })
		s.awaitObject(deployment())
		s.await(o, v1alpha1.ReasonReconcileSucceeded)
	})
}

func TestDeprovision_Killed_ReachesSameState(t *testing.T) {
	s := newSystem(t)
	t.Run("Warning, as deletion is blocked", func(t *testing.T) {
		s := s.anew(t)
		p := s.start("--block-deletion")
		o := s.provisioned()
		instance := s.instance("")
		s.delete(o)
		s.await(o, v1alpha1.ReasonNotCleaned)
		s.crash(p, o, nil, "--block-deletion")
		if !s.exists(instance) || instance.GetDeletionTimestamp() != nil {
			t.Error("the service instance is being deleted")
		}
		s.delete(instance)
		s.awaitGone(o)
		s.nothingLeft()
	})
	t.Run("HardDeleting, and the operand clears its finalizer afterwards", func(t *testing.T) {
		s := s.anew(t)
		p := s.start()
		o := s.provisioned()
		instance := s.instance(operandFinalizer)
		s.delete(o)
		s.await(o, v1alpha1.ReasonHardDeleting)
		testkit.Eventually(t, waitTimeout, "the deletion of the service instance", func() bool { return s.exists(instance) && instance.GetDeletionTimestamp() != nil })
		s.settle(o)
		p = s.crash(p, o, nil, "--hard-delete-timeout=1h")
		s.patch(instance, `{"metadata":{"finalizers":null}}`)
		s.awaitGone(o)
		s.nothingLeft()
		for series, want := range map[string]float64{`{mode="hard",outcome="done"}`: 1, `{mode="soft",outcome="done"}`: 0} {
			if got := p.metric("btpmanager_deletes_total" + series); got != want {
				t.Errorf("btpmanager_deletes_total%s is %v, want %v", series, got, want)
			}
		}
	})
	t.Run("HardDeleting, and the time is over meanwhile", func(t *testing.T) {
		s := s.anew(t)
		p := s.start()
		o := s.provisioned()
		s.instance(operandFinalizer)
		s.delete(o)
		s.await(o, v1alpha1.ReasonHardDeleting)
		s.crash(p, o, func() {
			s.writeStatus(o, func() {
				o.Status.Deprovisioning.HardDeleteDeadline = *past(&o.Status.Deprovisioning.HardDeleteDeadline)
			})
		}, "--hard-delete-timeout=1h")
		s.awaitGone(o)
		s.awaitEvent(o, v1alpha1.ReasonSoftDeleting)
		s.nothingLeft()
	})
	t.Run("SoftDeleting, with an unreachable foreign webhook", func(t *testing.T) {
		s := s.anew(t)
		const flag = "--hard-delete-timeout=2s"
		p := s.start(flag)
		o := s.provisioned()
		s.instance(operandFinalizer)
		obstacle := s.unreachableWebhook()
		s.delete(o)
		s.await(o, v1alpha1.ReasonSoftDeleting)
		s.crash(p, o, nil, flag)
		s.delete(obstacle)
		s.awaitGone(o)
		s.nothingLeft()
	})
	t.Run("Error, with a policy that forbids the removal", func(t *testing.T) {
		s := s.anew(t)
		p := s.start()
		o := s.provisioned()
		allow := s.forbidRemoval()
		s.delete(o)
		s.await(o, v1alpha1.ReasonResourceRemovalFailed)
		s.crash(p, o, nil)
		allow()
		s.awaitGone(o)
		s.nothingLeft()
	})
	t.Run("the removal, with a foreign finalizer on an object of the chart", func(t *testing.T) {
		s := s.anew(t)
		p := s.start()
		o := s.provisioned()
		held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: kymaSystem, Name: "sap-btp-operator-config"}}
		s.patch(held, `{"metadata":{"finalizers":["`+foreign+`"]}}`)
		s.delete(o)
		testkit.Eventually(t, waitTimeout, "the removal waits for the ConfigMap", func() bool {
			return s.exists(held) && held.DeletionTimestamp != nil && s.exists(o) && o.Status.Deprovisioning.Phase == v1alpha1.PhaseRemoval
		})
		s.crash(p, o, nil)
		s.patch(held, `{"metadata":{"finalizers":null}}`)
		s.awaitGone(o)
		s.nothingLeft()
	})
}

// past is a deadline as if more time had gone by than BTP Manager gives to anything.
func past(deadline *metav1.Time) *metav1.Time {
	at := metav1.NewTime(deadline.Add(-time.Hour))
	return &at
}

// writeStatus changes the status of a BtpOperator while no BTP Manager runs.
func (s *system) writeStatus(o *v1alpha1.BtpOperator, change func()) {
	s.t.Helper()
	before := o.DeepCopy()
	change()
	if err := s.Status().Patch(s.t.Context(), o, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

// settle waits until a deprovisioning has counted what is left.
func (s *system) settle(o *v1alpha1.BtpOperator) {
	s.t.Helper()
	testkit.Eventually(s.t, waitTimeout, "the count of what is left", func() bool { return s.exists(o) && o.Status.Deprovisioning.ServiceInstances == 1 })
}

// awaitObject waits until there is an object that is not being deleted.
func (s *system) awaitObject(o client.Object) {
	s.t.Helper()
	testkit.Eventually(s.t, waitTimeout, o.GetName()+" exists", func() bool { return s.exists(o) && o.GetDeletionTimestamp() == nil })
}

// unreachableWebhook refuses every change of a service instance, and it is not the operand's.
func (s *system) unreachableWebhook() *admissionv1.ValidatingWebhookConfiguration {
	s.t.Helper()
	w := &admissionv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "somebodys-webhook"},
		Webhooks: []admissionv1.ValidatingWebhook{{
			Name:                    "webhook.example.com",
			ClientConfig:            admissionv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/")},
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             new(admissionv1.SideEffectClassNone),
			Rules: []admissionv1.RuleWithOperations{{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{"services.cloud.sap.com"}, APIVersions: []string{"*"}, Resources: []string{"serviceinstances"}},
			}},
		}},
	}
	s.create(w)
	s.t.Cleanup(func() {
		// Without it the cleaning would hang.
		_ = s.Delete(context.WithoutCancel(s.t.Context()), w)
	})
	return w
}

// forbidRemoval has a policy keep the network policies of the operand, until the function that it returns is called.
func (s *system) forbidRemoval() (allow func()) {
	s.t.Helper()
	meta := metav1.ObjectMeta{Name: "somebodys-policy"}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Delete},
				Rule:       admissionv1.Rule{APIGroups: []string{"networking.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"networkpolicies"}},
			},
		}}},
		Validations: []admissionv1.Validation{{Expression: "false", Message: "network policies must not be removed"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: policy.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
	}}
	s.create(policy)
	s.create(binding)
	forbidden := func() bool {
		kept := &networkingv1.NetworkPolicyList{}
		if err := s.List(s.t.Context(), kept, client.InNamespace(kymaSystem), client.MatchingLabels{"app.kubernetes.io/managed-by": "btp-manager"}); err != nil || len(kept.Items) == 0 {
			s.t.Fatalf("%d network policies of the operand, %v", len(kept.Items), err)
		}
		return s.Delete(s.t.Context(), &kept.Items[0], client.DryRunAll) != nil
	}
	allow = sync.OnceFunc(func() {
		for _, o := range []client.Object{binding, policy} {
			if err := s.Delete(context.WithoutCancel(s.t.Context()), o); err != nil {
				s.t.Error(err)
			}
		}
	})
	s.t.Cleanup(allow)
	testkit.Eventually(s.t, waitTimeout, "the policy is in force", forbidden)
	return allow
}
