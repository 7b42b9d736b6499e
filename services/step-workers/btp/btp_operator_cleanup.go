package btp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
	"github.com/kyma-project/keb/services/step-workers/internal/outcome"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

// cleanup deletes the service bindings and then the service instances of the runtime, and waits until the BTP operator
// has let go of them. When that takes too long it takes their finalizers away.
type cleanup struct{ *shared }

// Name implements worker.Step.
func (cleanup) Name() string { return "BTPOperator_Cleanup" }

// accountCleanup is the user agent of the job that deprovisions the instances of deleted subaccounts (facts/keb.md section 7).
const accountCleanup = "accountcleanup-job"

// errGone tells that there is no runtime to clean.
var errGone = errors.New("there is no runtime")

// Describe implements worker.Described.
func (cleanup) Describe() worker.Description {
	return worker.Description{
		Summary: "Deletes the service bindings and service instances from the runtime, and takes their finalizers away when " +
			"that takes too long.",
		Calls: []worker.Call{
			{System: "provisioner", Operation: "runtimeStatus"},
			{System: system, Operation: "list servicebindings"},
			{System: system, Operation: "delete servicebindings"},
			{System: system, Operation: "patch servicebindings"},
			{System: system, Operation: "list serviceinstances"},
			{System: system, Operation: "delete serviceinstances"},
			{System: system, Operation: "patch serviceinstances"},
			{System: system, Operation: "get secrets"},
			{System: system, Operation: "delete secrets"},
		},
	}
}

// Run implements worker.Step.
func (s cleanup) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	kubeconfig, err := s.kubeconfig(ctx, op)
	if errors.Is(err, errGone) {
		return worker.Skip(op, err.Error())
	}
	if err != nil {
		return outcome.Again(op, component, s.cfg.RetryInterval, fmt.Errorf("get the kubeconfig: %w", err))
	}
	runtime, err := s.open(kubeconfig)
	if err != nil {
		return worker.Fail(op, outcome.Error(component, err))
	}
	defer runtime.Close()

	now := time.Now
	if s.deps.Now != nil {
		now = s.deps.Now
	}
	// The account behind the instances is gone, so nobody is there who could still delete them properly.
	soft := op.UserAgent == accountCleanup || now().Sub(op.FirstTriedAt) >= s.cfg.SoftDeleteAfter
	// Bindings first: an instance that is still bound cannot be deleted.
	for _, kind := range []schema.GroupVersionResource{kube.ServiceBindings, kube.ServiceInstances} {
		left, err := s.clean(ctx, runtime, kind, soft)
		// Also a refusal is repeated: a webhook that denies deletions may be gone soon, and the step's budget is short.
		if err != nil {
			return outcome.Again(op, component, s.cfg.RetryInterval, err)
		}
		if left > 0 {
			return worker.Wait(op, s.cfg.RetryInterval, fmt.Sprintf("%d %s are being deleted", left, kind.Resource))
		}
	}
	// A cluster that is not ours lives on, and must not keep the credentials.
	if op.Plan.Name == provisioner.PlanOwnCluster {
		if err := withdraw(ctx, runtime); err != nil {
			return outcome.Again(op, component, s.cfg.RetryInterval, err)
		}
	}
	log.Info("service bindings and instances are gone", "soft", soft)
	return op, 0, nil
}

// clean deletes all objects of a kind and returns how many are still there. A runtime that does not know the kind has
// none. One that cannot be deleted does not keep the others from being deleted.
func (s cleanup) clean(ctx context.Context, runtime *kube.Client, kind schema.GroupVersionResource, soft bool) (left int, err error) {
	objects, err := runtime.List(ctx, kind, "", "")
	if kube.IsNotFound(err) {
		return 0, nil
	}
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
	objects, err = runtime.List(ctx, kind, "", "")
	return len(objects), err
}

// maxRefused is how many objects that cannot be deleted the error names.
const maxRefused = 5

// remove deletes an object, and with soft takes its finalizers away.
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

// kubeconfig asks the Runtime Provisioner: the stage memory of the provisioning is long gone.
func (s cleanup) kubeconfig(ctx context.Context, op worker.Operation) ([]byte, error) {
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
	status, err := s.runtimes.RuntimeStatus(ctx, op.Context.Subscription(), d.RuntimeID)
	if extclient.IsNotFound(err) {
		return nil, errGone
	}
	if err != nil {
		return nil, err
	}
	if status.Configuration.Kubeconfig == "" {
		return nil, errGone
	}
	return []byte(status.Configuration.Kubeconfig), nil
}
