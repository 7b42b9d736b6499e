// Package services counts, deletes and watches what users order from SAP BTP through the operand: the ServiceInstances and
// ServiceBindings of all namespaces (docs/contracts/btp-manager.md#deprovisioning).
//
// HardDelete and SoftDelete make one pass and never wait for a deletion: what is left tells whether another pass is needed. All
// they know comes from the cluster, so a pass goes on where another process was killed. Lists hold metadata only, in pages. The
// kinds may be unknown to the cluster; then there is nothing to count and to delete.
package services

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// DefaultRequestTimeout is docs/contracts/btp-manager.md#timers, DeleteRequestTimeout.
	DefaultRequestTimeout = 5 * time.Minute
	// DefaultWatchRetry is how long Watch lets pass, at most, before it asks again for kinds that the cluster does not know.
	DefaultWatchRetry = 30 * time.Second
)

// Config are the limits of the calls.
type Config struct {
	// RequestTimeout limits each request to the Kubernetes API, and the time in which one pass deletes objects of one kind.
	// 0 means DefaultRequestTimeout.
	RequestTimeout time.Duration
	// WatchRetry is the longest pause of Watch between two tries. 0 means DefaultWatchRetry.
	WatchRetry time.Duration
}

// Deps is what Services works with.
type Deps struct {
	// Client reads without a cache.
	Client client.Client
	// REST connects Watch.
	REST *rest.Config
}

// Services works on the service instances and bindings of a cluster. It holds no state and is safe for use by several
// goroutines.
type Services struct {
	cfg  Config
	deps Deps
}

// New returns Services. It calls nobody.
func New(cfg Config, deps Deps) *Services {
	if cfg.RequestTimeout <= 0 {
		cfg.RequestTimeout = DefaultRequestTimeout
	}
	if cfg.WatchRetry <= 0 {
		cfg.WatchRetry = DefaultWatchRetry
	}
	return &Services{cfg: cfg, deps: deps}
}

// kind is one of the operand's two kinds.
type kind struct{ name, resource string }

var (
	instance = kind{"ServiceInstance", "serviceinstances"}
	binding  = kind{"ServiceBinding", "servicebindings"}
)

// api is where both kinds are (docs/contracts/btp-manager.md#operand).
var api = schema.GroupVersion{Group: "services.cloud.sap.com", Version: "v1"}

// meta is the metadata of one.
func (k kind) meta(namespace, name string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	o.SetGroupVersionKind(api.WithKind(k.name))
	return o
}

// object is one, or with empty names any, to be read in full or deleted. The answer to a deletion holds the object when that
// stays for its finalizers, and a client for metadata takes that for an error.
func (k kind) object(namespace, name string) *unstructured.Unstructured {
	o := new(unstructured.Unstructured)
	o.SetGroupVersionKind(api.WithKind(k.name))
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// call gives a request its time. What ends for lack of it is a context.DeadlineExceeded, whatever the client makes of it.
func (s *Services) call(ctx context.Context, request func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	err := request(limited)
	if err != nil && limited.Err() != nil && !errors.Is(err, limited.Err()) {
		return fmt.Errorf("%w: %w", limited.Err(), err)
	}
	return err
}
