package lifecyclemanager

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// applyKyma creates the Kyma resource from its template. For an existing resource it updates only the labels and the annotation,
// because the spec belongs to the customer.
func (s *shared) applyKyma(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, runtimeID, err := read(op)
	if err != nil {
		return op, 0, err
	}
	if runtimeID == "" {
		return withoutRuntime(op)
	}
	name := resourceName(runtimeID)
	if err := s.removeFormer(ctx, op, kube.Kymas, cmp.Or(d.Namespace, d.Home, s.cfg.Namespace), name, log); err != nil {
		return op, s.cfg.RetryInterval, err
	}
	// An operation that began before templates existed has no saved template.
	_, t, err := s.template(ctx, op, d.Template)
	if err != nil {
		return op, s.cfg.RetryInterval, err
	}
	namespace := s.home(d, runtimeID, t)
	if err := s.apply(ctx, op, t, runtimeID, namespace); err != nil {
		return op, s.cfg.RetryInterval, err
	}
	log.Info("kyma resource applied", "kyma_name", name)
	return op, 0, op.SaveDetails(Details{Namespace: namespace, Resource: name})
}

// removeFormer deletes the objects of former runtimes, except the one with that name. An incomplete suspension may leave such objects.
func (s *shared) removeFormer(
	ctx context.Context, op worker.Operation, kind schema.GroupVersionResource, namespace, name string, log *slog.Logger,
) error {
	names, err := s.find(ctx, kind, namespace, op.InstanceID, "")
	if err != nil {
		return err
	}
	for _, n := range names {
		if n == name {
			continue
		}
		log.Info("object of a former runtime deleted", "resource", kind.Resource, "name", n)
		if err := s.kube.Delete(ctx, kind, namespace, n); err != nil {
			return err
		}
	}
	return nil
}

func (s *shared) apply(ctx context.Context, op worker.Operation, t template, runtimeID, namespace string) error {
	labels, annotations := marks(op, runtimeID)
	have, err := s.kube.Get(ctx, t.kind(), namespace, resourceName(runtimeID))
	switch {
	case kube.IsNotFound(err):
		return s.kube.Create(ctx, t.kind(), t.resource(resourceName(runtimeID), namespace, labels, annotations))
	case err != nil || isMarked(have, labels, annotations):
		return err
	}
	return s.mark(ctx, t.kind(), have, labels, annotations, nil)
}
