package btpmanager_test

import (
	"encoding/base64"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/test/internal/harness"
)

const skip = "kyma-project.io/skip-reconciliation"

// change changes the Secret of KEB as a user of the cluster.
func (c *cluster) change(how func(s *corev1.Secret)) {
	c.t.Helper()
	var s corev1.Secret
	require.NoError(c.t, c.Get(c.t.Context(), given, &s))
	how(&s)
	require.NoError(c.t, c.Update(c.t.Context(), &s))
}

// rotate updates the order with new credentials, and wants the step that brings them into the runtime to end so.
func (c *cluster) rotate(sys *harness.System, o *harness.Order, want string) {
	c.t.Helper()
	renew(o)
	id := sys.Update(o, osbclient.Change{Context: o.Body().Context})
	sys.PollEnd(o, id, osb.StateSucceeded, limit)
	// It is tried again when the runtime does not answer in time.
	if got := sys.AwaitEnd(id, "succeeded", limit).Outcomes("Inject_BTP_Operator_Credentials"); len(got) == 0 || got[len(got)-1] != want {
		c.t.Errorf("the outcomes of the step are %v, want %s in the end", got, want)
	}
}

func TestCredentials_OfCustomers_ReachOperandAndStay(t *testing.T) {
	c := start(t)
	c.order()
	sys, o := c.system()
	sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	c.await(v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	id := c.checkOperand(o)

	theirs := *o
	renew(&theirs)
	c.change(func(s *corev1.Secret) {
		s.Labels[skip] = "true"
		s.Data["clientid"], s.Data["clientsecret"] = []byte(theirs.ClientID), []byte(theirs.ClientSecret)
	})
	c.checkOperand(&theirs)
	c.rotate(sys, o, "skipped")
	c.checkOperand(&theirs)

	// They do not want to care any more.
	c.change(func(s *corev1.Secret) { delete(s.Labels, skip) })
	c.rotate(sys, o, "succeeded")
	if again := c.checkOperand(o); again != id {
		t.Errorf("the cluster id was %s and is %s", id, again)
	}
	c.await(v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	c.remove()
}

// Kubernetes rejects changes of such a Secret.
func TestCredentials_ImmutableSecret_IsReplaced(t *testing.T) {
	c := start(t)
	c.order()
	sys, o := c.system()
	sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	id := c.checkOperand(o)
	for name, theirs := range map[string]*corev1.Secret{
		"immutable":       {Immutable: new(true), Type: corev1.SecretTypeOpaque},
		"of another type": {Type: "example.com/credentials"},
	} {
		var ours corev1.Secret
		require.NoError(t, c.Get(t.Context(), given, &ours))
		theirs.ObjectMeta = metav1.ObjectMeta{
			Namespace: given.Namespace, Name: given.Name, Labels: map[string]string{managedBy: "helm", "team": "a"},
		}
		theirs.Data = maps.Clone(ours.Data)
		theirs.Data["tokenurlsuffix"] = []byte("/oauth/token")
		require.NoError(t, c.Delete(t.Context(), &ours))
		require.NoError(t, c.Create(t.Context(), theirs))
		c.rotate(sys, o, "succeeded")
		if again := c.checkOperand(o); again != id {
			t.Errorf("%s: the cluster id was %s and is %s", name, id, again)
		}
		var after corev1.Secret
		require.NoError(t, c.Get(t.Context(), given, &after))
		want := map[string]string{managedBy: keb, "app.kubernetes.io/watched-by": keb}
		if diff := cmp.Diff(want, after.Labels); diff != "" || after.Type != corev1.SecretTypeOpaque || after.Immutable != nil {
			t.Errorf("%s: type %s, immutable %v, labels (-want +got):\n%s", name, after.Type, after.Immutable, diff)
		}
		c.await(v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	}
	c.remove()
}

// A cluster of the customer gets its credentials by KEB's own way, and loses them at the end.
func TestOwnCluster_InstanceDeleted_LosesCredentials(t *testing.T) {
	c := start(t)
	c.order()
	sys := harness.Start(t, harness.Options{})
	o := harness.Azure()
	renew(o)
	o.PlanID = harness.PlanOwnCluster
	o.Parameters = map[string]any{
		"name": "own", "shootName": "own-cluster", "shootDomain": "own-cluster.example.com", "kubeconfig": base64.StdEncoding.EncodeToString(c.kubeconfig),
	}
	sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	c.await(v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	c.checkOperand(o)

	sys.PollEnd(o, sys.Deprovision(o), osb.StateSucceeded, limit)
	c.await(v1alpha1.StateError, v1alpha1.ReasonMissingSecret)
	if left := c.data(given); left != nil {
		t.Errorf("a Secret with %d keys is left", len(left))
	}
	c.remove()
	if left := c.data(used); left != nil {
		t.Errorf("the operand's Secret with %d keys is left", len(left))
	}
}
