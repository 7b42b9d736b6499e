package e2e_test

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

// lease is the lease duration of a replica that does not release its lease.
const lease = 15 * time.Second

// replica starts a BTP Manager with leader election and its own user.
func (s *system) replica(user string) *process {
	s.t.Helper()
	p := launch(s.t, s.cluster.Kubeconfig(s.t, s.cluster.As(s.t, user)), "--leader-elect", "--log-format=text")
	p.awaitUp()
	return p
}

// lease reads the Lease of the leader election.
func (s *system) lease() *coordinationv1.Lease {
	s.t.Helper()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: kymaSystem, Name: "btp-manager.operator.kyma-project.io"}}
	if !s.exists(l) {
		s.t.Fatal("there is no Lease")
	}
	return l
}

// holders returns the successive holders of the Lease; "" means none.
func (s *system) holders(read *coordinationv1.Lease) (next func() string) {
	s.t.Helper()
	c, err := client.NewWithWatch(s.cluster.Config, client.Options{Scheme: s.Scheme()})
	if err != nil {
		s.t.Fatal(err)
	}
	w, err := c.Watch(s.t.Context(), new(coordinationv1.LeaseList), client.InNamespace(read.Namespace), client.MatchingFields{"metadata.name": read.Name},
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: read.ResourceVersion}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(w.Stop)
	last := ptr.Deref(read.Spec.HolderIdentity, "")
	return func() string {
		s.t.Helper()
		limit := time.After(waitTimeout)
		for {
			select {
			case e := <-w.ResultChan():
				l, ok := e.Object.(*coordinationv1.Lease)
				if !ok {
					s.t.Fatalf("the watch of the Lease has ended: %+v", e)
				}
				if now := ptr.Deref(l.Spec.HolderIdentity, ""); now != last {
					last = now
					return now
				}
			case <-limit:
				s.t.Fatal("no other replica holds the Lease")
			}
		}
	}
}

// writes returns a user's changes, and attempts, except those of the Lease.
func (s *system) writes(user string) []string {
	s.t.Helper()
	var all []string
	for _, e := range s.cluster.Audit(s.t) {
		reads := slices.Contains([]string{"get", "list", "watch"}, e.Verb)
		if e.User.Username == user && !reads && e.Stage == auditv1.StageResponseComplete && e.ObjectRef != nil && e.ObjectRef.Resource != "leases" {
			all = append(all, e.Verb+" "+e.ObjectRef.Resource+" "+e.ObjectRef.Name)
		}
	}
	return all
}

func TestReplicas_LeaderStops_OtherTakesOver(t *testing.T) {
	s := newSystem(t)
	s.grant(firstReplica, secondReplica)

	first := s.replica(firstReplica)
	first.awaitLead()
	second := s.replica(secondReplica)
	o := s.provisioned()
	testkit.Eventually(t, waitTimeout, "the second one stands for election", func() bool {
		return slices.ContainsFunc(s.cluster.Audit(t), func(e auditv1.Event) bool {
			return e.User.Username == secondReplica && e.ObjectRef != nil && e.ObjectRef.Resource == "leases"
		})
	})
	if !first.leads() || second.leads() {
		t.Errorf("the first leads: %v, the second leads: %v", first.leads(), second.leads())
	}
	if len(s.writes(firstReplica)) == 0 {
		t.Error("the audit log contains no call of the leader")
	}
	if w := s.writes(secondReplica); len(w) > 0 || second.metric("btpmanager_reconciles_total") > 0 {
		t.Errorf("the one that waits has acted: %v", w)
	}

	t.Run("when the leader is killed, once its lease is over", func(t *testing.T) {
		s := s.in(t)
		first.kill()
		held := s.lease()
		s.delete(deployment())
		second.awaitLead()
		if d := time.Duration(ptr.Deref(held.Spec.LeaseDurationSeconds, 0)) * time.Second; d != lease {
			t.Errorf("the leader had a lease of %s, want %s", d, lease)
		}
		if early := held.Spec.RenewTime.Add(lease).Sub(s.lease().Spec.AcquireTime.Time); early > 0 {
			t.Errorf("took over %s before the end of the lease", early)
		}
		s.awaitObject(deployment())
		s.await(o, v1alpha1.ReasonReconcileSucceeded)
		if len(s.writes(secondReplica)) == 0 {
			t.Error("the second replica has brought the Deployment back without a trace in the audit log")
		}
	})
	t.Run("when the leader is asked to end, at once", func(t *testing.T) {
		s := s.in(t)
		third := s.replica(firstReplica)
		before := len(s.writes(firstReplica))
		if third.leads() {
			t.Fatal("two lead")
		}
		held := s.lease()
		next := s.holders(held)
		second.terminate()
		third.awaitLead()
		// A released lease is taken immediately, any other one when the waiting replica has seen no change for the lease duration.
		if holder := next(); holder != "" {
			t.Errorf("the Lease went over to %s without being let go of", holder)
		}
		if holder := next(); holder != ptr.Deref(s.lease().Spec.HolderIdentity, "") {
			t.Errorf("the Lease went over to %s, which is not its holder", holder)
		}
		if ptr.Deref(s.lease().Spec.LeaseTransitions, 0) == 0 {
			t.Error("the Lease never changed hands")
		}
		third.awaitPass()
		s.delete(deployment())
		s.awaitObject(deployment())
		if len(s.writes(firstReplica)) == before {
			t.Error("the third replica leads and does nothing")
		}
		third.terminate()
		if holder := ptr.Deref(s.lease().Spec.HolderIdentity, ""); holder != "" {
			t.Errorf("no replica runs, and the Lease is held by %s", holder)
		}
	})
}
