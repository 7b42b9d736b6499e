package controller_test

import (
	"strings"
	"testing"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/services"
)

func TestSoftDelete_Stuck_NamesRemainingObjects(t *testing.T) {
	s := newSystem(t)
	s.provisioned()
	s.delete()
	s.hardDelete = func() (services.Left, error) {
		return services.Left{Instances: 2, First: []string{"ServiceInstance users/gone", "ServiceInstance users/held"}}, nil
	}
	s.pass()
	s.now = s.now.Add(s.settings.HardDeleteTimeout)
	s.pass()
	s.want(v1alpha1.StateDeleting, v1alpha1.ReasonSoftDeleting)
	s.softDelete = func() (services.Left, error) {
		return services.Left{Instances: 1, First: []string{"ServiceInstance users/held: a finalizer is restored"}}, nil
	}
	if _, err := s.pass(); err != nil {
		t.Fatal(err)
	}
	message := s.want(v1alpha1.StateDeleting, v1alpha1.ReasonSoftDeleting)
	if strings.Contains(message, "users/gone") || !strings.Contains(message, "users/held: a finalizer is restored") {
		t.Errorf("message %q does not name what is left", message)
	}
}

func TestHardDelete_OperandFails_IsNamed(t *testing.T) {
	s := newSystem(t)
	s.provisioned()
	s.delete()
	s.applied = func() error { return errRefused }
	s.hardDelete = func() (services.Left, error) { return services.Left{Instances: 1}, nil }
	if _, err := s.pass(); err != nil {
		t.Fatal(err)
	}
	message := s.want(v1alpha1.StateDeleting, v1alpha1.ReasonHardDeleting)
	if !strings.Contains(message, "no more of them") || !strings.Contains(message, "1 service instance") {
		t.Errorf("message %q does not name the failure and what is left", message)
	}
}
