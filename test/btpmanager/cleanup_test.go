package btpmanager_test

import (
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/test/internal/harness"
)

const cleanup = "BTPOperator_Cleanup"

// cleaned wants the clean-up of an operation to have ended well, and tells how often it was tried.
func cleaned(t *testing.T, sys *harness.System, id string) (attempts int) {
	t.Helper()
	op := sys.AwaitEnd(id, "succeeded", limit)
	outcomes := op.Outcomes(cleanup)
	if len(op.NotCompleted) > 0 || len(outcomes) == 0 || outcomes[len(outcomes)-1] != "succeeded" {
		t.Errorf("not completed: %v; outcomes of the clean-up: %v", op.NotCompleted, outcomes)
	}
	return len(outcomes)
}

// The API server does not know service instances before the operand's chart is there.
func TestSuspension_NoOperand_HasNothingToClean(t *testing.T) {
	c := start(t)
	var instances unstructured.UnstructuredList
	instances.SetGroupVersionKind(services[1])
	if err := c.List(t.Context(), &instances); !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) {
		t.Fatalf("a list of service instances is answered %v, want that the kind is not known", err)
	}
	sys, o := c.system()
	sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	suspension := sys.Update(o, active(false))
	sys.PollEnd(o, suspension, osb.StateSucceeded, limit)
	cleaned(t, sys, suspension)
	if len(c.data(given)) != 5 {
		t.Error("the Secret of KEB is gone")
	}
}

// The remote resources of a deleted account cannot be removed, so the removal must not wait for them.
func TestRemoval_DeletedAccount_RemovesFinalizers(t *testing.T) {
	c := start(t)
	c.order()
	sys, o := c.system()
	sys.PollEnd(o, sys.Provision(o), osb.StateSucceeded, limit)
	c.await(v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	c.useServices()
	sys.DeleteSubaccount(o.Subaccount)
	job := sys.Run("job", "-o", "json", "subaccount-cleanup", "--wait")
	if code := job.ExitCode(limit); code != 0 {
		t.Fatalf("the job ended with %d:\n%s", code, job.Output())
	}
	i := slices.IndexFunc(sys.Operations(), func(op harness.Operation) bool { return op.Type == "deprovision" })
	if i < 0 {
		t.Fatalf("the job has begun nothing: %s", job.Output())
	}
	cleaned(t, sys, sys.Operations()[i].ID)
	c.eventually("the end of the bindings and instances", func() (bool, string) {
		left := c.count()
		return left == 0, fmt.Sprintf("%d left", left)
	})
	c.remove()
}
