package app_test

import (
	"strings"
	"testing"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

func TestWithoutItsSecretABtpOperatorIsInErrorUntilTheSecretComes(t *testing.T) {
	s := newSystem(t)
	s.start()
	o := s.operator("btpoperator")
	if m := s.await(o, v1alpha1.StateError, v1alpha1.ReasonMissingSecret); !strings.Contains(m, "kyma-system/sap-btp-manager") {
		t.Errorf("message %q does not name the Secret", m)
	}
	s.create(secret())
	s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	if !s.exists(deployment()) {
		t.Error("the operand's Deployment does not exist")
	}
}

func TestASecretThatLacksSomethingIsNamedInTheCondition(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change []string
		want   []string
	}{
		{"keys", []string{"cluster_id", "-", "clientsecret", "-"}, []string{"clientsecret", "cluster_id"}},
		{"values", []string{"cluster_id", "", "clientsecret", ""}, []string{"clientsecret", "cluster_id"}},
		{"both", []string{"sm_url", "-", "tokenurl", ""}, []string{"sm_url", "tokenurl"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			s.start()
			s.create(secret(tt.change...))
			o := s.operator("btpoperator")
			message := s.await(o, v1alpha1.StateError, v1alpha1.ReasonInvalidSecret)
			for _, want := range tt.want {
				if !strings.Contains(message, want) {
					t.Errorf("message %q does not name %s", message, want)
				}
			}
			s.delete(secret())
			s.await(o, v1alpha1.StateError, v1alpha1.ReasonMissingSecret)
			s.create(secret())
			s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
			s.delete(secret())
			s.await(o, v1alpha1.StateError, v1alpha1.ReasonMissingSecret)
		})
	}
}
