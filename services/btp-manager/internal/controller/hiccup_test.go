package controller_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
	"github.com/kyma-project/keb/services/btp-manager/internal/services"
)

var (
	errBusy     = apierrors.NewServiceUnavailable("the API server restarts")
	errConflict = apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "a", errors.New("it changed"))
	errRefused  = apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "b", errors.New("no more of them"))
)

func TestReconcile_APIServerRestarts_StaysReady(t *testing.T) {
	s := newSystem(t)
	s.provisioned()
	s.applied = func() error { return errBusy }
	for range 3 {
		if _, err := s.pass(); !errors.Is(err, errBusy) {
			t.Fatalf("error %v, want one that brings the next pass soon", err)
		}
		s.want(v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
		s.now = s.now.Add(s.settings.ReadyTimeout / 4)
	}
	s.applied = func() error { return nil }
	s.provisioned()

	// The time starts again.
	s.applied = func() error { return errBusy }
	s.now = s.now.Add(s.settings.ReadyTimeout)
	s.pass()
	s.want(v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	s.now = s.now.Add(s.settings.ReadyTimeout)
	if _, err := s.pass(); !errors.Is(err, errBusy) {
		t.Errorf("error %v, want %v", err, errBusy)
	}
	if message := s.want(v1alpha1.StateError, v1alpha1.ReasonConsistencyCheckFailed); !strings.Contains(message, "restarts") {
		t.Errorf("message %q does not contain the reason", message)
	}
}

func TestReconcile_ConflictAndError_ReportsError(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ready bool
		want  v1alpha1.Reason
	}{
		{"while it is provisioned", false, v1alpha1.ReasonChartInstallFailed},
		{"while it is ready", true, v1alpha1.ReasonConsistencyCheckFailed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSystem(t)
			if tt.ready {
				s.provisioned()
			}
			s.applied = func() error { return errors.Join(errConflict, errRefused) }
			if _, err := s.pass(); !errors.Is(err, errRefused) {
				t.Errorf("error %v: without one the next pass comes every second", err)
			}
			if message := s.want(v1alpha1.StateError, tt.want); !strings.Contains(message, "no more of them") {
				t.Errorf("message %q does not name the failure", message)
			}
		})
	}
}

// Another controller may change an object faster than it can be applied.
func TestReconcile_LastingConflict_ReportsError(t *testing.T) {
	s := newSystem(t)
	s.applied = func() error { return errConflict }
	s.pass()
	s.want(v1alpha1.StateProcessing, v1alpha1.ReasonInitialized)
	s.now = s.now.Add(s.settings.ReadyTimeout)
	s.pass()
	if message := s.want(v1alpha1.StateError, v1alpha1.ReasonChartInstallFailed); !strings.Contains(message, "it changed") {
		t.Errorf("message %q does not name the conflict", message)
	}
	s.applied = func() error { return nil }
	s.provisioned()
}

// A single conflict shows nothing about the operand.
func TestReconcile_SingleConflictAfterDeadline_IsTolerated(t *testing.T) {
	s := newSystem(t)
	s.unready = []operand.NotReady{{Ref: operand.Ref{Kind: "Deployment", Name: "d"}, Reason: "no pod is ready"}}
	s.pass()
	s.now = s.now.Add(s.settings.ReadyTimeout)
	s.applied = func() error { return errConflict }
	s.pass()
	s.want(v1alpha1.StateProcessing, v1alpha1.ReasonInitialized)
	s.applied = func() error { return nil }
	s.pass()
	s.want(v1alpha1.StateError, v1alpha1.ReasonChartInstallFailed)

	s.applied = func() error { return errConflict }
	for _, want := range []string{"no pod is ready", "it changed"} {
		s.pass()
		if message := s.want(v1alpha1.StateError, v1alpha1.ReasonChartInstallFailed); !strings.Contains(message, want) {
			t.Errorf("message %q does not contain %q", message, want)
		}
		s.now = s.now.Add(s.settings.ReadyTimeout)
	}
}

func TestReconcile_MissingRight_IsNamed(t *testing.T) {
	for _, name := range []string{"sap-btp-manager", "sap-btp-operator-clusterid"} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t)
			s.unready = []operand.NotReady{{Ref: operand.Ref{Kind: "Deployment", Name: "d"}, Reason: "no pod is ready"}}
			s.secretRead = func(read string) error {
				if read != name {
					return nil
				}
				return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, name, errors.New("no right to read it"))
			}
			if _, err := s.pass(); !apierrors.IsForbidden(err) {
				t.Errorf("error %v, want that the Secret may not be read", err)
			}
			if message := s.want(v1alpha1.StateError, v1alpha1.ReasonChartInstallFailed); !strings.Contains(message, "no right to read it") {
				t.Errorf("message %q does not name the failure", message)
			}
		})
	}
}

func TestRemove_RequestFails_IsReported(t *testing.T) {
	s := newSystem(t)
	s.provisioned()
	s.delete()
	failed := apierrors.NewInternalError(errors.New("failed calling webhook"))
	s.removed = func() ([]operand.NotReady, error) { return nil, failed }
	if _, err := s.pass(); !errors.Is(err, failed) {
		t.Errorf("error %v, want %v", err, failed)
	}
	if message := s.want(v1alpha1.StateDeleting, v1alpha1.ReasonHardDeleting); !strings.Contains(message, "failed calling webhook") {
		t.Errorf("message %q does not name the awaited objects", message)
	}
}

func TestRemove_InvalidValues_Completes(t *testing.T) {
	s := newSystem(t)
	s.provisioned()
	s.delete()
	s.rendered = func(values map[string]any) error {
		if values != nil {
			return errors.New("the image is invalid")
		}
		return nil
	}
	if _, err := s.pass(); err != nil {
		t.Fatal(err)
	}
	if err := s.Get(t.Context(), client.ObjectKeyFromObject(s.cr), s.cr); !apierrors.IsNotFound(err) {
		t.Errorf("the BtpOperator: %v, want that it is gone", err)
	}
}

// The manager writes the status, but users with sufficient rights can edit it, and backups restore it.
func TestReconcile_InvalidStatus_IsCorrected(t *testing.T) {
	for _, reason := range []v1alpha1.Reason{v1alpha1.ReasonNotCleaned, v1alpha1.ReasonHardDeleting, v1alpha1.ReasonSoftDeleting} {
		t.Run(string(reason), func(t *testing.T) {
			s := newSystem(t)
			s.provisioned()
			m, _ := reason.Meaning()
			s.cr.Status.State, s.cr.Status.Conditions[0].Reason = m.State, string(reason)
			require.NoError(t, s.Status().Update(t.Context(), s.cr))
			s.provisioned()
		})
	}
	for _, reason := range []v1alpha1.Reason{v1alpha1.ReasonReconcileSucceeded, v1alpha1.ReasonInitialized, v1alpha1.ReasonNotCleaned} {
		t.Run("while deleting, "+string(reason), func(t *testing.T) {
			s := newSystem(t)
			s.provisioned()
			s.delete()
			s.hardDelete = func() (services.Left, error) { return services.Left{Instances: 1}, nil }
			s.pass()
			m, _ := reason.Meaning()
			s.cr.Status.State, s.cr.Status.Conditions[0].Reason = m.State, string(reason)
			require.NoError(t, s.Status().Update(t.Context(), s.cr))
			s.now = s.now.Add(s.settings.HardDeleteTimeout)
			if _, err := s.pass(); err != nil {
				t.Fatal(err)
			}
			s.want(v1alpha1.StateDeleting, v1alpha1.ReasonSoftDeleting)
		})
	}
}

func TestFollow_RestoredDeprovisioning_IsCleared(t *testing.T) {
	s := newSystem(t)
	older := s.cr.DeepCopy()
	older.Name, older.UID, older.ResourceVersion = "a-btpoperator", "b", "" // the names decide, because both are equally old
	require.NoError(t, s.Create(t.Context(), older))
	s.cr.Status.State = v1alpha1.StateDeleting
	s.cr.Status.Deprovisioning = &v1alpha1.Deprovisioning{Phase: v1alpha1.PhaseHardDelete}
	require.NoError(t, s.Status().Update(t.Context(), s.cr))
	for range 2 {
		if _, err := s.pass(); err != nil {
			t.Fatal(err)
		}
		s.want(v1alpha1.StateError, v1alpha1.ReasonOlderCRExists)
		if s.cr.Status.Deprovisioning != nil {
			t.Error("the status still has a deprovisioning")
		}
	}
	if n := len(s.recorder.Events); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

func TestReconcile_StatusConflict_RetriesSoon(t *testing.T) {
	s := newSystem(t)
	s.statusWrite = func() error { return errConflict }
	result, err := s.pass()
	if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > time.Second {
		t.Errorf("next pass after %s, error %v", result.RequeueAfter, err)
	}
	s.statusWrite = func() error { return nil }
	s.provisioned()
}
