package controller_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
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

// A finalizer of a user can keep an object for days.
func TestDeprovision_NoProgress_WaitsForInterval(t *testing.T) {
	for name, block := range map[string]func(s *system){
		"soft delete": func(s *system) {
			s.hardDelete = func() (services.Left, error) {
				return services.Left{Instances: 1}, &services.RefusedError{Err: errRefused}
			}
			s.softDelete = func() (services.Left, error) { return services.Left{Instances: 1}, nil }
			s.pass()
		},
		"removal": func(s *system) {
			s.removed = func() ([]operand.NotReady, error) {
				return []operand.NotReady{{Ref: operand.Ref{Kind: "ConfigMap", Name: "held"}, Reason: "is being deleted"}}, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t)
			s.provisioned()
			s.delete()
			block(s)
			first, err := s.pass()
			if err != nil || first.RequeueAfter <= 0 || first.RequeueAfter > time.Second {
				t.Errorf("after the first pass the wait is %s, error %v", first.RequeueAfter, err)
			}
			second, err := s.pass()
			if err != nil || second.RequeueAfter != s.settings.HardDeleteCheckInterval {
				t.Errorf("without progress the wait is %s, error %v, want %s", second.RequeueAfter, err, s.settings.HardDeleteCheckInterval)
			}
		})
	}
}

func TestHardDelete_NothingLeft_InstallsNoOperand(t *testing.T) {
	s := newSystem(t)
	s.cr.Finalizers = []string{v1alpha1.Finalizer}
	require.NoError(t, s.Update(t.Context(), s.cr))
	s.delete()
	s.applied = func() error {
		t.Error("the operand is installed to be removed")
		return nil
	}
	if _, err := s.pass(); err != nil {
		t.Fatal(err)
	}
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(s.cr), s.cr); !apierrors.IsNotFound(err) {
		t.Errorf("the BtpOperator: %v, want that it is gone", err)
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
