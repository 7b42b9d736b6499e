package app_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

// versions returns the resource versions of all objects that BTP Manager writes.
func (s *system) versions(o *v1alpha1.BtpOperator) map[string]string {
	s.t.Helper()
	if !s.exists(o) {
		s.t.Fatal("the BtpOperator is gone")
	}
	// A test may change the BtpOperator; BTP Manager writes its status.
	out := map[string]string{"status": fmt.Sprintf("%+v %v", o.Status, o.Finalizers)}
	for name, made := range s.made() {
		out[name] = made.GetResourceVersion()
	}
	return out
}

func TestReady_RepeatedPasses_WriteNothing(t *testing.T) {
	s := newSystem(t)
	seen := s.observe()
	s.start()
	o := s.provisioned()
	seen.settle(t)
	seen.written()
	before, passes := s.versions(o), seen.passes()

	const rounds = 10
	for i := range rounds {
		n := seen.passes()
		s.poke(o)
		seen.more(t, n)
		// This Deployment does not belong to the chart, but its events reach the watch of Deployments.
		n = seen.passes()
		d := deployment()
		s.exists(d)
		d.Status.Conditions[0].Message = fmt.Sprintf("event %d", i)
		require.NoError(t, s.Status().Update(t.Context(), d))
		seen.more(t, n)
	}
	seen.settle(t)
	if n := seen.passes() - passes; n < 2*rounds {
		t.Errorf("%d passes, want at least %d", n, 2*rounds)
	}
	if got := seen.written(); len(got) > 0 {
		t.Errorf("BTP Manager wrote: %q", got)
	}
	after := s.versions(o)
	// The test itself wrote to this object; a write by BTP Manager would have been detected.
	delete(before, "Deployment kyma-system/"+operandPod)
	delete(after, "Deployment kyma-system/"+operandPod)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("written to (-before +after):\n%s", diff)
	}
	if len(before) < 15 {
		t.Errorf("only %d objects", len(before))
	}
}

// Users may create and delete thousands of service instances and bindings.
func TestReady_ServiceInstances_CauseNoPasses(t *testing.T) {
	s := newSystem(t)
	seen := s.observe()
	s.start()
	s.provisioned()
	s.namespace("users")
	// The watch of a kind begins at once if the kind is served at the start.
	s.stop()
	s.start()
	const longer = 1500 * time.Millisecond // than the delay of these events
	seen.rest(t, longer)
	passes := seen.passes()
	instance, binding := s.serviceInstance("users", "an-instance"), s.serviceBinding("users", "a-binding")
	seen.rest(t, longer)
	s.delete(binding)
	s.delete(instance)
	seen.rest(t, longer)
	if n := seen.passes() - passes; n > 0 {
		t.Errorf("%d passes for service instances and bindings of a user", n)
	}
}

func TestManager_NothingToDo_MakesFewRequests(t *testing.T) {
	s := newSystem(t)
	s.settings.ReadyTimeout = 300 * time.Millisecond
	seen := s.observe()
	s.start()
	s.deployments.Hold()
	o := s.operator("btpoperator")
	for _, tt := range []struct {
		name   string
		do     func()
		state  v1alpha1.State
		reason v1alpha1.Reason
	}{
		{"waiting for the Secret", func() {}, v1alpha1.StateError, v1alpha1.ReasonMissingSecret},
		{"not ready in time", func() { s.create(secret()) }, v1alpha1.StateError, v1alpha1.ReasonChartInstallFailed},
		{"ready", func() { s.deployments.Release() }, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.do()
			s.in(t).await(o, tt.state, tt.reason)
			// Delayed events of the watches arrive earlier; a loop never pauses for so long.
			seen.rest(t, 1500*time.Millisecond)
		})
	}
}
