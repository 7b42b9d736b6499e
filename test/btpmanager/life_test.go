package btpmanager_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/test/internal/harness"
)

// system starts a KEB for which the runtime of the order is the cluster. The order is a trial: only trials are suspended.
func (c *cluster) system() (*harness.System, *harness.Order) {
	c.t.Helper()
	sys := harness.Start(c.t, harness.Options{})
	o := harness.Trial()
	renew(o)
	sys.RealCluster(o, c.kubeconfig)
	return sys, o
}

// renew gives an order credentials that nothing else has.
func renew(o *harness.Order) {
	o.ClientID, o.ClientSecret = harness.NewCanary().String(), harness.NewCanary().String()
}

func active(yes bool) osbclient.Change {
	return osbclient.Change{Context: map[string]any{"active": yes}}
}

// checkOperand wants the operand to get the credentials of the order, and the id that KEB has given the cluster, which it returns.
func (c *cluster) checkOperand(o *harness.Order) (clusterID string) {
	c.t.Helper()
	secret := c.data(given)
	clusterID = secret["cluster_id"]
	want := map[string]string{
		"clientid": o.ClientID, "clientsecret": o.ClientSecret, "sm_url": "https://service-manager.example.com",
		"tokenurl": "https://token.example.com", "cluster_id": clusterID,
	}
	if diff := cmp.Diff(want, secret); diff != "" || clusterID == "" {
		c.t.Fatalf("the Secret of KEB, with the cluster id %q (-want +got):\n%s", clusterID, diff)
	}
	delete(want, "cluster_id")
	c.eventually("the credentials of the order in the Secret of the operand", func() (bool, string) {
		got := c.data(used)
		// What else the operand needs is not of KEB.
		for name := range got {
			if _, ok := want[name]; !ok {
				delete(got, name)
			}
		}
		diff := cmp.Diff(want, got)
		return diff == "", diff
	})
	// The BTP manager applies it after the Secret.
	c.eventually("the cluster id "+clusterID+" in the ConfigMap of the operand", func() (bool, string) {
		got := c.clusterID()
		return got == clusterID, got
	})
	return clusterID
}

func TestCredentials_WholeLifecycle_ReachOperand(t *testing.T) {
	c := start(t)
	c.order()
	c.await(v1alpha1.StateError, v1alpha1.ReasonMissingSecret)

	sys, o := c.system()
	sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	c.await(v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	id := c.checkOperand(o)

	renew(o)
	sys.PollEnd(o, sys.Update(o, osbclient.Change{Context: o.Body().Context}), osb.StateSucceeded, limit)
	if again := c.checkOperand(o); again != id {
		t.Errorf("the cluster id was %s and is %s", id, again)
	}
	c.await(v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)

	// KEB waits for the operand to clean up the remote side, bindings first.
	c.useServices()
	suspension := sys.Update(o, active(false))
	sys.Await(suspension, limit, "a first attempt of the clean-up", func(op *harness.Operation) bool { return len(op.Outcomes(cleanup)) > 0 })
	c.eventually("the end of the bindings and instances", func() (bool, string) {
		left, early := c.operate()
		if early {
			t.Fatal("an instance was asked to go before its binding was gone")
		}
		return left == 0, fmt.Sprintf("%d left", left)
	})
	sys.PollEnd(o, suspension, osb.StateSucceeded, limit)
	if cleaned(t, sys, suspension) < 2 {
		t.Error("the clean-up did not wait for the operand")
	}

	// The runtime comes back. Here it is the same one, so its operand is still there.
	renew(o)
	sys.UpdateAtOnce(o, osbclient.Change{Context: o.Body().Context})
	sys.PollEnd(o, sys.Update(o, active(true)), osb.StateSucceeded, limit)
	if again := c.checkOperand(o); again != id {
		t.Errorf("the cluster id was %s and is %s after the suspension", id, again)
	}
	c.await(v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)

	c.remove()
	var secret corev1.Secret
	if err := c.Get(t.Context(), given, &secret); err != nil || secret.Labels[managedBy] != keb {
		t.Errorf("the Secret of KEB, with the labels %v: %v", secret.Labels, err)
	}
	for _, text := range []string{o.ClientID, o.ClientSecret} {
		if strings.Contains(c.manager.Output(), text) {
			t.Error("the BTP manager has logged a credential")
		}
	}
}

// remove deletes the BtpOperator and wants nothing of the BTP manager to be left.
func (c *cluster) remove() {
	c.t.Helper()
	if made := c.labelled(); len(made) < 10 {
		c.t.Errorf("the BTP manager has made only %v", made)
	}
	cr, err := c.btpOperator()
	if err == nil {
		err = c.Delete(c.t.Context(), cr)
	}
	require.NoError(c.t, err)
	c.eventually("the end of the BtpOperator", func() (bool, string) {
		cr, err := c.btpOperator()
		return apierrors.IsNotFound(err), fmt.Sprintf("%v, %+v", err, cr.Status)
	})
	if left := c.labelled(); len(left) > 0 {
		c.t.Errorf("left: %v", left)
	}
}
