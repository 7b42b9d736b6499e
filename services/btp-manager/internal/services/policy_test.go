package services_test

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// prevent is the annotation of an instance that must not be deleted (docs/contracts/btp-manager.md#operand).
const prevent = "services.cloud.sap.com/preventDeletion"

// preventDeletion makes the API server reject the deletion of instances with the annotation, until lift is called or the test ends. It takes
// a moment until the policy applies, and until it no longer applies.
func (b *bundle) preventDeletion() (lift func()) {
	b.t.Helper()
	name := metav1.ObjectMeta{Name: "prevent-deletion"}
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: name,
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Delete},
					Rule: admissionv1.Rule{
						APIGroups: []string{"services.cloud.sap.com"}, APIVersions: []string{"v1"}, Resources: []string{"serviceinstances"},
					},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: "!has(oldObject.metadata.annotations) || !('" + prevent + "' in oldObject.metadata.annotations)",
				Message:    "must not be deleted",
			}},
		},
	}
	enforce := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: name,
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name.Name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	b.create(policy)
	b.create(enforce)
	lift = func() {
		for _, o := range []client.Object{enforce, policy} {
			if err := client.IgnoreNotFound(b.admin.Delete(context.WithoutCancel(b.t.Context()), o)); err != nil {
				b.t.Error(err)
			}
		}
	}
	b.t.Cleanup(lift)
	return lift
}
