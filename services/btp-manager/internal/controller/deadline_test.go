package controller_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/services"
)

func TestHardDelete_DeadlineDuringPass_Ends(t *testing.T) {
	for _, tt := range []struct {
		name string
		took time.Duration
	}{
		{"to the second", 20 * time.Minute},
		{"long before the pass is over", 25 * time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			s.provisioned()
			s.delete()
			s.hardDelete = func() (services.Left, error) {
				s.now = s.now.Add(tt.took)
				return services.Left{Instances: 1}, nil
			}
			result, err := s.pass()
			require.NoError(t, err)
			s.want(v1alpha1.StateDeleting, v1alpha1.ReasonHardDeleting)
			if result.RequeueAfter <= 0 {
				t.Fatalf("the next pass comes after %s, which means never", result.RequeueAfter)
			}
			if _, err := s.pass(); err != nil {
				t.Fatal(err)
			}
			s.want(v1alpha1.StateDeleting, v1alpha1.ReasonSoftDeleting)
		})
	}
}

// An API server that does not answer or list must not cause a soft delete, which abandons the remote side.
func TestHardDelete_NoRefusal_Continues(t *testing.T) {
	get := func(err error) error {
		return fmt.Errorf("list: %w", &url.Error{Op: "Get", URL: "https://10.0.0.1", Err: err})
	}
	for _, tt := range []struct {
		name string
		err  error
	}{
		{"lost connection", get(errors.New("http2: client connection lost"))},
		{"no route", get(errors.New("dial tcp 10.0.0.1:443: connect: no route to host"))},
		{"handshake", get(errors.New("net/http: TLS handshake timeout"))},
		{"list that took too long", fmt.Errorf("list: %w", apierrors.NewResourceExpired("too old"))},
		{"list that is forbidden", fmt.Errorf("list: %w", errRefused)},
		{"webhook without a server", apierrors.NewInternalError(errors.New("failed calling webhook"))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			s.provisioned()
			s.delete()
			s.hardDelete = func() (services.Left, error) { return services.Left{Instances: 2, Bindings: 1}, nil }
			s.pass()
			s.hardDelete = func() (services.Left, error) { return services.Left{}, tt.err }
			_, first := s.pass()
			result, second := s.pass()
			if message := s.want(v1alpha1.StateDeleting, v1alpha1.ReasonHardDeleting); !strings.Contains(message, tt.err.Error()) {
				t.Errorf("message %q does not contain %q", message, tt.err)
			}
			// After an error the pauses grow to minutes, past the deadline.
			if first != nil || second != nil || result.RequeueAfter <= 0 || result.RequeueAfter > s.settings.HardDeleteCheckInterval {
				t.Errorf("next pass after %s, errors %v and %v", result.RequeueAfter, first, second)
			}
			s.now = s.now.Add(s.settings.HardDeleteTimeout)
			if _, err := s.pass(); err != nil {
				t.Fatal(err)
			}
			s.want(v1alpha1.StateDeleting, v1alpha1.ReasonSoftDeleting)
			if d := s.cr.Status.Deprovisioning; d.ServiceInstances != 2 || d.ServiceBindings != 1 {
				t.Errorf("%d instances and %d bindings, want the last numbers: 2 and 1", d.ServiceInstances, d.ServiceBindings)
			}
		})
	}
}

// The settings before the start are unknown, and they may block the deletion.
func TestDeletion_ConfigRejected_WaitsWhileInstancesExist(t *testing.T) {
	for _, tt := range []struct {
		name, label string
		left        services.Left
		waits       bool
	}{
		{"an instance is left", "", services.Left{Instances: 1}, true},
		{"another label", "yes", services.Left{Bindings: 1}, true},
		{"the label", "true", services.Left{Instances: 1}, false},
		{"nothing is left", "", services.Left{}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			settings := &corev1.ConfigMap{Data: map[string]string{"ReadyTimeout": "never"}}
			settings.Namespace, settings.Name = "kyma-system", "sap-btp-manager"
			require.NoError(t, s.Create(t.Context(), settings))
			s.provisioned()
			s.cr.Labels = map[string]string{v1alpha1.ForceDeleteLabel: tt.label}
			require.NoError(t, s.Update(t.Context(), s.cr))
			s.delete()
			s.counted = tt.left
			s.hardDelete = func() (services.Left, error) { return services.Left{Instances: 1}, nil }
			if _, err := s.pass(); err != nil {
				t.Fatal(err)
			}
			if !tt.waits {
				s.want(v1alpha1.StateDeleting, v1alpha1.ReasonHardDeleting)
				return
			}
			if message := s.want(v1alpha1.StateWarning, v1alpha1.ReasonNotCleaned); !strings.Contains(message, "ReadyTimeout") {
				t.Errorf("message %q does not name the error in the ConfigMap", message)
			}
		})
	}
}

func TestHardDelete_Refusal_StartsSoftDelete(t *testing.T) {
	s := newSystem(t)
	s.provisioned()
	s.delete()
	s.hardDelete = func() (services.Left, error) {
		return services.Left{Instances: 1}, &services.RefusedError{Count: 1, Err: errRefused}
	}
	if _, err := s.pass(); err != nil {
		t.Fatal(err)
	}
	s.want(v1alpha1.StateDeleting, v1alpha1.ReasonSoftDeleting)
}
