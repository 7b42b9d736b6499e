package provisioner

import (
	"context"
	"errors"
	"fmt"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// annotationRuntimeID is the annotation of a Shoot with the id of its runtime. The Runtime Provisioner sets it
// (docs/contracts/runtime-provisioner.md#what-the-server-does).
const annotationRuntimeID = "kcp.provisioner.kyma-project.io/runtime-id"

// labelSubaccount is the label of a Shoot with its subaccount. Unlike the account, it never changes.
const labelSubaccount = "subaccount"

// reasonForeignShoot is the reason of an order whose name has a Shoot of another subaccount.
const reasonForeignShoot = "err_shoot_of_another_subaccount"

// isForeignShoot reports whether a search found only a Shoot of another subaccount.
func isForeignShoot(err error) bool {
	e, ok := errors.AsType[*worker.Error](err)
	return ok && e.Reason == reasonForeignShoot
}

// shoots finds runtimes by their Shoots.
type shoots struct {
	kube      *kube.Client
	namespace string
}

// runtimeOf returns the id of the runtime whose Shoot has the name of op's instance; empty if there is no such Shoot. A Shoot of another
// subaccount is an error, because only its name is the same.
func (s shoots) runtimeOf(ctx context.Context, op worker.Operation) (string, error) {
	if op.Runtime.ShootName == "" {
		return "", nil
	}
	shoot, err := s.kube.Get(ctx, kube.Shoots, s.namespace, op.Runtime.ShootName)
	if kube.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look up the shoot of the instance: %w", err)
	}
	if got := shoot.GetLabels()[labelSubaccount]; got != op.Context.SubaccountID {
		return "", &worker.Error{
			Component: kube.SystemGardener, Reason: reasonForeignShoot,
			Message: "the shoot " + op.Runtime.ShootName + " belongs to another subaccount",
		}
	}
	return shoot.GetAnnotations()[annotationRuntimeID], nil
}
