package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrl "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/config"
	"github.com/kyma-project/keb/services/btp-manager/internal/controller"
	"github.com/kyma-project/keb/services/btp-manager/internal/render"
	"github.com/kyma-project/keb/services/btp-manager/internal/services"
)

const (
	// settle is the delay after an event of an object, so that several concurrent changes cause one correction.
	settle = 200 * time.Millisecond
	// settleMany is the delay after events of service instances and bindings, of which thousands may be created or deleted.
	settleMany = time.Second
	// firstRetry is the pause after a failed pass. It doubles with every further failure, up to lastRetry.
	firstRetry, lastRetry = 250 * time.Millisecond, 5 * time.Minute
)

// kind is a kind of objects in the chart.
type kind struct {
	schema.GroupVersionKind
	namespaced bool
}

// kinds lists the kinds of the objects in the chart.
func kinds(c *render.Chart, cfg Config) ([]kind, error) {
	objects, err := c.Render(render.Release{Name: name, Namespace: cfg.Settings.ChartNamespace}, controller.ImageValues(cfg.Image))
	if err != nil {
		return nil, err
	}
	var all []kind
	for _, o := range objects {
		if k := (kind{o.GroupVersionKind(), o.GetNamespace() != ""}); !slices.Contains(all, k) {
			all = append(all, k)
		}
	}
	return all, nil
}

func metadataOf(k kind) *metav1.PartialObjectMetadata {
	m := new(metav1.PartialObjectMetadata)
	m.SetGroupVersionKind(k.GroupVersionKind)
	return m
}

// ours defines the content of the cache: the metadata of objects with our label, of the chart's kinds and in the chart's namespace, and
// Secrets in every namespace that may contain the credentials.
func ours(made []kind, namespace string) map[client.Object]cache.ByObject {
	by := map[client.Object]cache.ByObject{}
	for _, k := range made {
		selector := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{render.ManagedByLabel: render.ManagedBy})}
		if k.namespaced && k.Kind != "Secret" {
			selector.Namespaces = map[string]cache.Config{namespace: {}}
		}
		by[metadataOf(k)] = selector
	}
	return by
}

// watch connects the controllers with their events. An event of a shared object triggers all BtpOperators. For one that does not lead, a
// pass is short. An event of a service instance or binding triggers only those that are being deleted.
func (a *App) watch(
	r *controller.Reconciler, settings *controller.Settings, found *services.Services, made []kind, cfg config.Config, to *rest.Config,
) error {
	named, err := a.named(cfg, to)
	if err != nil {
		return err
	}
	left := make(chan event.GenericEvent, 1)
	allBtpOperators := handler.EnqueueRequestsFromMapFunc(a.allBtpOperators)
	b := builder.ControllerManagedBy(a.manager).Named("btpoperator").
		WithOptions(ctrl.Options{
			MaxConcurrentReconciles: 1, // package operand supports no concurrency
			SkipNameValidation:      new(true),
			RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
		}).
		For(&v1alpha1.BtpOperator{}, builder.WithPredicates(userChanges())).
		Watches(&v1alpha1.BtpOperator{}, allBtpOperators, builder.WithPredicates(leaderChanges())).
		WatchesRawSource(source.Kind(named, &corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, _ *corev1.Secret) []reconcile.Request { return a.allBtpOperators(ctx, nil) }))).
		WatchesRawSource(source.Kind(named, &corev1.ConfigMap{}, handler.TypedEnqueueRequestsFromMapFunc(
			func(ctx context.Context, _ *corev1.ConfigMap) []reconcile.Request { return a.allBtpOperators(ctx, nil) }))).
		WatchesRawSource(source.Channel(left, after(settleMany, a.deletedBtpOperators)))
	for _, k := range made {
		b = b.WatchesMetadata(metadataOf(k), after(settle, a.allBtpOperators))
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("make the controller of BtpOperators: %w", err)
	}
	err = builder.ControllerManagedBy(a.manager).Named("settings").
		WithOptions(ctrl.Options{SkipNameValidation: new(true)}).
		WatchesRawSource(source.Kind(named, &corev1.ConfigMap{}, &handler.TypedEnqueueRequestForObject[*corev1.ConfigMap]{})).
		Complete(settings)
	if err != nil {
		return fmt.Errorf("make the controller of the settings: %w", err)
	}
	// Only the leader runs these, like the controllers.
	err = a.manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return found.Watch(ctx, func() {
			select {
			case left <- event.GenericEvent{Object: new(v1alpha1.BtpOperator)}:
			default: // an event is already waiting
			}
		})
	}))
	if err != nil {
		return fmt.Errorf("add the watch of service instances and bindings: %w", err)
	}
	err = a.manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
		a.metrics.Leads(true)
		defer a.metrics.Leads(false)
		if _, _, err := settings.Read(ctx); err != nil {
			log.FromContext(ctx).Info("settings not read yet", "err", err.Error())
		}
		<-ctx.Done()
		return nil
	}))
	if err != nil {
		return fmt.Errorf("add the metric of the leader: %w", err)
	}
	return nil
}

// named creates a cache of two objects that are identified by name and may have any labels: the Secret with the credentials, which a user
// may create, and the ConfigMap with settings.
func (a *App) named(cfg config.Config, to *rest.Config) (cache.Cache, error) {
	only := func(name string) cache.ByObject {
		return cache.ByObject{
			Namespaces: map[string]cache.Config{cfg.ChartNamespace: {}},
			Field:      fields.OneTermEqualSelector("metadata.name", name),
		}
	}
	c, err := cache.New(to, cache.Options{
		Scheme: a.manager.GetScheme(), Mapper: a.manager.GetRESTMapper(), HTTPClient: a.manager.GetHTTPClient(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: only(cfg.SecretName), &corev1.ConfigMap{}: only(cfg.ConfigName)},
	})
	if err != nil {
		return nil, fmt.Errorf("make the cache of the Secret and the ConfigMap: %w", err)
	}
	if err := a.manager.Add(c); err != nil {
		return nil, fmt.Errorf("add the cache of the Secret and the ConfigMap: %w", err)
	}
	return c, nil
}

// allBtpOperators returns requests for all BtpOperators.
func (a *App) allBtpOperators(ctx context.Context, _ client.Object) []reconcile.Request {
	return a.btpOperators(ctx, func(*v1alpha1.BtpOperator) bool { return true })
}

// deletedBtpOperators returns requests for the BtpOperators that are being deleted. Only they depend on the remaining service instances and
// bindings.
func (a *App) deletedBtpOperators(ctx context.Context, _ client.Object) []reconcile.Request {
	return a.btpOperators(ctx, func(o *v1alpha1.BtpOperator) bool { return o.DeletionTimestamp != nil })
}

// btpOperators returns requests for the BtpOperators that include selects.
func (a *App) btpOperators(ctx context.Context, include func(*v1alpha1.BtpOperator) bool) []reconcile.Request {
	var all v1alpha1.BtpOperatorList
	if err := a.manager.GetCache().List(ctx, &all); err != nil {
		log.FromContext(ctx).Error(err, "BtpOperators not listed, they are reconciled after their interval")
		return nil
	}
	var requests []reconcile.Request
	for i := range all.Items {
		if include(&all.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	return requests
}

// after enqueues the requests that find returns, after a delay.
func after(wait time.Duration, find handler.MapFunc) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	wake := func(ctx context.Context, o client.Object, q queue) {
		for _, r := range find(ctx, o) {
			q.AddAfter(r, wait)
		}
	}
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q queue) { wake(ctx, e.Object, q) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q queue) { wake(ctx, e.ObjectNew, q) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q queue) { wake(ctx, e.Object, q) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { wake(ctx, e.Object, q) },
	}
}

// userChanges selects changes by users, and ignores our writes to the status.
func userChanges() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !slices.Equal(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers())
		},
	})
}

// leaderChanges selects the creation and the deletion of BtpOperators, because they can change the leader. A new one may be the oldest: timestamps
// have a resolution of a second, and the clocks of several API servers differ.
func leaderChanges() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return len(e.ObjectNew.GetFinalizers()) < len(e.ObjectOld.GetFinalizers())
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
