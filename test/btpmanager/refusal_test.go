package btpmanager_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/test/internal/harness"
)

// refuse lets the API server deny the deletion of bindings, as a webhook may, until lift is called.
func (c *cluster) refuse() (lift func()) {
	c.t.Helper()
	name := metav1.ObjectMeta{Name: "keep-bindings"}
	objects := []client.Object{
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: name, Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Delete},
					Rule:       admissionv1.Rule{APIGroups: []string{services[0].Group}, APIVersions: []string{"v1"}, Resources: []string{"servicebindings"}},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "must stay"}},
		}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		}},
	}
	for _, o := range objects {
		require.NoError(c.t, c.Create(c.t.Context(), o))
	}
	lift = func() {
		var errs []error
		for _, o := range slices.Backward(objects) {
			errs = append(errs, client.IgnoreNotFound(c.Delete(context.WithoutCancel(c.t.Context()), o)))
		}
		if err := errors.Join(errs...); err != nil {
			c.t.Error(err)
		}
	}
	c.t.Cleanup(lift)
	// It takes a moment until the policy counts.
	binding := &unstructured.Unstructured{}
	binding.SetGroupVersionKind(services[0])
	binding.SetNamespace("default")
	binding.SetName("db")
	c.eventually("a refused deletion", func() (bool, string) {
		err := c.Delete(c.t.Context(), binding, client.DryRunAll)
		return apierrors.IsInvalid(err) || apierrors.IsForbidden(err), fmt.Sprint(err)
	})
	return lift
}

func TestSuspension_DeletionRejected_IsRetried(t *testing.T) {
	c := start(t)
	c.order()
	sys, o := c.system()
	sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	c.await(v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	c.useServices()
	lift := c.refuse()
	suspension := sys.Update(o, active(false))
	op := sys.Await(suspension, limit, "a second attempt of the clean-up", func(op *harness.Operation) bool {
		return len(op.Outcomes(cleanup)) > 1
	})
	if e := op.At(t, cleanup).Error; e == nil || e.Component != "btp" {
		t.Errorf("the error of the clean-up is %+v", e)
	}
	if n := c.count(); n != 2 {
		t.Errorf("%d bindings and instances are left, want both", n)
	}
	lift()
	c.eventually("the end of the bindings and instances", func() (bool, string) {
		left, early := c.operate()
		return left == 0, fmt.Sprintf("%d left, an instance early %t", left, early)
	})
	sys.PollEnd(o, suspension, osb.StateSucceeded, limit)
	cleaned(t, sys, suspension)
	c.remove()
}
