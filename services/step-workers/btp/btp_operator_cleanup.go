package btp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// accountCleanup is the user agent of the job that deprovisions the instances of deleted subaccounts (docs/contracts/btp.md#clean-up).
const accountCleanup = "accountcleanup-job"

var (
	// errGone means that there is no runtime to clean.
	errGone = errors.New("there is no runtime")
	// errNoKubeconfig means that the Runtime Provisioner currently has no kubeconfig of the runtime.
	errNoKubeconfig = errors.New("the runtime has no kubeconfig")
	// errUnusable means that the kubeconfig is invalid.
	errUnusable = errors.New("the kubeconfig cannot be used")
)

// left is the number of objects that the BTP operator did not remove in time. The step saves it before it removes the finalizers:
// afterwards the objects cannot be counted.
type left struct {
	OperationID string `json:"operationId"`
	Instances   int    `json:"instances"`
	Bindings    int    `json:"bindings"`
}

// saveDelay is the delay before the next try if the orchestrator has to save the result of this one first.
const saveDelay = time.Millisecond

// cleanup deletes the service bindings and then the service instances of the runtime, and waits for the BTP operator. After
// SoftDeleteAfter it removes the finalizers of the remaining objects, and reports their number.
func (s *shared) cleanup(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if op.UserAgent == accountCleanup {
		return s.runOnce(ctx, op, log)
	}
	runtime, err := s.runtime(ctx, op)
	switch {
	case errors.Is(err, errGone):
		return worker.Skip(op, errGone.Error())
	case errors.Is(err, errUnusable):
		return op, 0, err
	case err != nil:
		return worker.Retry(op, s.cfg.RetryInterval, err)
	}
	defer runtime.Close()
	var saved Details
	if err := op.Details(Name, &saved); err != nil {
		return op, 0, err
	}
	if l := saved.CleanupLeft; l != nil && l.OperationID == op.ID {
		return s.giveUp(ctx, op, runtime, *l, log)
	}
	// Bindings first: a bound instance cannot be deleted.
	for _, kind := range []schema.GroupVersionResource{kube.ServiceBindings, kube.ServiceInstances} {
		n, err := s.clean(ctx, runtime, kind, false)
		// Repeat also after a rejection: a webhook that rejects deletions may be removed soon, and the step's budget is short.
		if err != nil {
			return worker.Retry(op, s.cfg.RetryInterval, err)
		}
		if n == 0 {
			continue
		}
		if s.now().Sub(op.FirstTriedAt) < s.cfg.SoftDeleteAfter {
			return worker.Wait(op, s.cfg.RetryInterval, fmt.Sprintf("%d %s are being deleted", n, kind.Resource))
		}
		return s.count(ctx, op, runtime)
	}
	if err := s.withdraw(ctx, op, runtime); err != nil {
		return worker.Retry(op, s.cfg.RetryInterval, err)
	}
	log.Info("service bindings and instances are gone")
	return op, 0, nil
}

// runOnce removes the finalizers immediately. The account of the instances is deleted, so the BTP operator cannot delete them
// properly, and one try is enough.
func (s *shared) runOnce(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	runtime, err := s.runtime(ctx, op)
	if errors.Is(err, errGone) {
		return worker.Skip(op, errGone.Error())
	}
	if err != nil {
		return worker.NotCompleted(op, err)
	}
	defer runtime.Close()
	if err := errors.Join(s.strip(ctx, runtime), s.withdraw(ctx, op, runtime)); err != nil {
		return worker.NotCompleted(op, err)
	}
	log.Info("service bindings and instances of a deleted account are gone")
	return op, 0, nil
}

// count saves the number of remaining objects. The next try removes the finalizers.
func (s *shared) count(ctx context.Context, op worker.Operation, runtime *kube.Client) (worker.Operation, time.Duration, error) {
	l := left{OperationID: op.ID}
	bindings, errBindings := list(ctx, runtime, kube.ServiceBindings)
	instances, errInstances := list(ctx, runtime, kube.ServiceInstances)
	if err := errors.Join(errBindings, errInstances); err != nil {
		return worker.Retry(op, s.cfg.RetryInterval, err)
	}
	l.Bindings, l.Instances = len(bindings), len(instances)
	if err := op.SaveDetails(Details{CleanupLeft: &l}); err != nil {
		return op, 0, err
	}
	return worker.Wait(op, saveDelay, fmt.Sprintf("%s after %s: their finalizers will be removed", l, s.cfg.SoftDeleteAfter))
}

// giveUp removes the finalizers and reports the number of remaining objects. A suspension continues as if the BTP operator had
// removed them, because an unsuspension creates an empty runtime.
func (s *shared) giveUp(ctx context.Context, op worker.Operation, runtime *kube.Client, l left, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if err := errors.Join(s.strip(ctx, runtime), s.withdraw(ctx, op, runtime)); err != nil {
		return worker.Retry(op, s.cfg.RetryInterval, err)
	}
	log.Warn("removed the finalizers of service bindings and instances", "instances", l.Instances, "bindings", l.Bindings)
	if err := op.SaveDetails(map[string]any{"cleanupLeft": nil}); err != nil {
		return op, 0, err
	}
	if op.Temporary {
		return op, 0, nil
	}
	return worker.NotCompleted(op, &worker.Error{
		Component: component, Reason: worker.ReasonTimeout,
		Message: fmt.Sprintf("%s after %s; their finalizers were removed", l, s.cfg.SoftDeleteAfter),
	})
}

// withdraw removes the credentials from the customer's own cluster, which continues to exist.
func (s *shared) withdraw(ctx context.Context, op worker.Operation, runtime *kube.Client) error {
	if op.Plan.Name != provisioner.PlanOwnCluster {
		return nil
	}
	return withdraw(ctx, runtime)
}

// String returns both counts as a text for operators.
func (l left) String() string {
	return fmt.Sprintf("%s and %s were left", plural(l.Instances, "service instance"), plural(l.Bindings, "service binding"))
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// strip deletes all bindings and then all instances, and removes their finalizers.
func (s *shared) strip(ctx context.Context, runtime *kube.Client) error {
	for _, kind := range []schema.GroupVersionResource{kube.ServiceBindings, kube.ServiceInstances} {
		n, err := s.clean(ctx, runtime, kind, true)
		if err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("%d %s still exist without finalizers", n, kind.Resource)
		}
	}
	return nil
}

// list returns all objects of a kind. A runtime without the kind has none.
func list(ctx context.Context, runtime *kube.Client, kind schema.GroupVersionResource) ([]unstructured.Unstructured, error) {
	objects, err := runtime.List(ctx, kind, "", "")
	if kube.IsNotFound(err) {
		return nil, nil
	}
	return objects, err
}

// clean deletes all objects of a kind and returns the number of remaining objects. An object that cannot be deleted does not prevent
// the deletion of the other objects.
func (s *shared) clean(ctx context.Context, runtime *kube.Client, kind schema.GroupVersionResource, soft bool) (left int, err error) {
	objects, err := list(ctx, runtime, kind)
	if err != nil || len(objects) == 0 {
		return 0, err
	}
	var refused []error
	for _, o := range objects {
		err := remove(ctx, runtime, kind, &o, soft)
		if extclient.IsTemporary(err) {
			return 0, err
		}
		if err != nil && len(refused) < maxRefused {
			refused = append(refused, err)
		}
	}
	if len(refused) > 0 {
		return 0, errors.Join(refused...)
	}
	objects, err = list(ctx, runtime, kind)
	return len(objects), err
}

// maxRefused is the maximum number of rejected deletions in an error.
const maxRefused = 5

// remove deletes an object. With soft it also removes the object's finalizers.
func remove(ctx context.Context, runtime *kube.Client, kind schema.GroupVersionResource, o *unstructured.Unstructured, soft bool) error {
	if o.GetDeletionTimestamp() == nil {
		if err := runtime.Delete(ctx, kind, o.GetNamespace(), o.GetName()); err != nil {
			return err
		}
	}
	if !soft || len(o.GetFinalizers()) == 0 {
		return nil
	}
	err := runtime.Patch(ctx, kind, o.GetNamespace(), o.GetName(), []byte(`{"metadata":{"finalizers":null}}`))
	if kube.IsNotFound(err) {
		return nil
	}
	return err
}

// runtime returns a client of the runtime's API.
func (s *shared) runtime(ctx context.Context, op worker.Operation) (*kube.Client, error) {
	kubeconfig, err := s.kubeconfig(ctx, op)
	if err != nil {
		return nil, fmt.Errorf("get the kubeconfig: %w", err)
	}
	client, err := s.open(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnusable, err)
	}
	return client, nil
}

// kubeconfig asks the Runtime Provisioner, because the stage memory of the provisioning no longer exists.
func (s *shared) kubeconfig(ctx context.Context, op worker.Operation) ([]byte, error) {
	if op.Plan.Name == provisioner.PlanOwnCluster {
		var given struct {
			Kubeconfig string `json:"kubeconfig"`
		}
		err := op.ClaimCredentials(ctx, event.CredentialsKubeconfig, &given)
		if errors.Is(err, worker.ErrNoCredentials) {
			return nil, errGone
		}
		return []byte(given.Kubeconfig), err
	}
	var d provisioner.Details
	if err := op.Details(provisioner.Name, &d); err != nil {
		return nil, err
	}
	if d.RuntimeID == "" {
		return nil, errGone
	}
	status, err := s.runtimes.RuntimeStatus(ctx, op.Context.GlobalAccountID, d.RuntimeID)
	if extclient.IsNotFound(err) {
		return nil, errGone
	}
	if err != nil {
		return nil, err
	}
	if status.Configuration.Kubeconfig == "" {
		return nil, missing(status.LastOperation)
	}
	return []byte(status.Configuration.Kubeconfig), nil
}

// missing returns why a runtime has no kubeconfig. A runtime that was never ready or is being removed has no cluster to clean. Any
// other runtime will get a kubeconfig again.
func missing(last provisioner.OperationStatus) error {
	if last.Removal() || strings.HasPrefix(last.Operation, "Provision") && last.State != provisioner.StateSucceeded {
		return errGone
	}
	return errNoKubeconfig
}
