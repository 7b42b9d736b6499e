package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

// younger waits until a new BtpOperator is younger than o: creation times have a resolution of a second.
func (s *system) younger(o *v1alpha1.BtpOperator) {
	s.t.Helper()
	testkit.Eventually(s.t, waitTimeout, "a second passes", func() bool { return time.Now().Unix() > o.CreationTimestamp.Unix() })
}

// follows waits until a BtpOperator reports that another one leads.
func (s *system) follows(o, leader *v1alpha1.BtpOperator) {
	s.t.Helper()
	s.await(o, v1alpha1.StateError, v1alpha1.ReasonOlderCRExists)
	s.until(o, "BtpOperator "+o.Name+" says that "+leader.Name+" leads", func() bool {
		message := o.Status.Conditions[0].Message
		return strings.Contains(message, `"`+leader.Name+`"`) && strings.Contains(message, `"`+leader.Namespace+`"`)
	})
	if len(o.Finalizers) > 0 {
		s.t.Errorf("BtpOperator %s does not lead and has the finalizers %v", o.Name, o.Finalizers)
	}
}

func TestLeader_OldestIsDeleted_NextLeads(t *testing.T) {
	s := newSystem(t)
	s.create(secret())
	s.start()
	// The order by name would be reversed.
	first := s.operator("d")
	s.younger(first)
	second := s.operator("c")
	s.younger(second)
	third, fourth := s.operator("b"), s.operator("a")
	s.await(first, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	for _, o := range []*v1alpha1.BtpOperator{second, third, fourth} {
		s.follows(o, first)
	}

	t.Run("one that does not lead goes at once and takes nothing along", func(t *testing.T) {
		s := s.in(t)
		before := deployment()
		s.exists(before)
		s.delete(fourth)
		if s.exists(fourth) {
			t.Errorf("it is still there, with the finalizers %v", fourth.Finalizers)
		}
		s.poke(first)
		s.await(first, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
		if after := deployment(); !s.exists(after) || after.UID != before.UID {
			t.Error("the operand's Deployment is gone or another one")
		}
	})
	t.Run("a finalizer that the leader loses comes back", func(t *testing.T) {
		s := s.in(t)
		s.patch(first, `{"metadata":{"finalizers":null}}`)
		s.until(first, "the finalizer comes back", func() bool { return len(first.Finalizers) == 1 && first.Finalizers[0] == v1alpha1.Finalizer })
	})
	t.Run("a finalizer that another one gets goes", func(t *testing.T) {
		s := s.in(t)
		s.patch(third, `{"metadata":{"finalizers":["`+v1alpha1.Finalizer+`"]}}`)
		s.until(third, "the finalizer goes", func() bool { return len(third.Finalizers) == 0 })
	})
	t.Run("the next oldest takes over", func(t *testing.T) {
		s := s.in(t)
		s.delete(first)
		s.awaitGone(first)
		s.await(second, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
		s.awaitEvent(second, "Normal", string(v1alpha1.ReasonProcessing))
		s.follows(third, second)
		if !s.exists(deployment()) {
			t.Error("the operand's Deployment does not exist")
		}
	})
}

func TestLeader_EqualAge_FirstByNamespaceAndName(t *testing.T) {
	s := newSystem(t)
	s.create(secret())
	s.namespace("a-namespace")
	var all []*v1alpha1.BtpOperator
	testkit.Eventually(t, waitTimeout, "three BtpOperators are made within a second", func() bool {
		all = nil
		for _, name := range []string{"kyma-system/b", "kyma-system/a", "a-namespace/z"} {
			o := new(v1alpha1.BtpOperator)
			o.Namespace, o.Name, _ = strings.Cut(name, "/")
			s.create(o)
			all = append(all, o)
		}
		if all[0].CreationTimestamp.Equal(&all[2].CreationTimestamp) {
			return true
		}
		for _, o := range all {
			s.delete(o)
		}
		return false
	})
	s.start()
	b, a, z := all[0], all[1], all[2]
	s.await(z, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	s.follows(a, z)
	s.follows(b, z)
	s.delete(z)
	s.awaitGone(z)
	s.await(a, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	s.follows(b, a)
}

func TestLeader_FinalizerRemovedByHand_NextLeads(t *testing.T) {
	s := newSystem(t)
	s.settings.BlockDeletion = true
	s.start()
	first := s.provisioned()
	s.younger(first)
	second := s.operator("a-second")
	s.follows(second, first)
	s.namespace("users")
	instance, binding := s.serviceInstance("users", "an-instance"), s.serviceBinding("users", "a-binding")

	s.delete(first)
	s.await(first, v1alpha1.StateWarning, v1alpha1.ReasonNotCleaned)
	s.follows(second, first)
	s.patch(first, `{"metadata":{"finalizers":null}}`)
	s.awaitGone(first)
	s.await(second, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	if !s.exists(instance) || !s.exists(binding) || instance.GetDeletionTimestamp() != nil || binding.GetDeletionTimestamp() != nil {
		t.Error("the service instance or the service binding is gone")
	}
}
