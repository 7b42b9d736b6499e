// Package services counts, deletes and watches the ServiceInstances and ServiceBindings of all namespaces, with which users order services
// of SAP BTP through the operand (docs/contracts/btp-manager.md#deprovisioning).
//
// HardDelete and SoftDelete make one pass and never wait for a deletion: their result shows whether another pass is needed. They have no
// state, so a pass continues the work of a killed process. Lists contain metadata only, in pages. If the cluster does not serve the
// kinds, there is nothing to count or delete.
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

// DefaultWatchRetry is the maximum interval at which Watch checks for kinds that the cluster does not serve.
const DefaultWatchRetry = 30 * time.Second

// Config holds the limits of the calls.
type Config struct {
	// RequestTimeout limits each request to the Kubernetes API, and the time in which one pass deletes objects of one kind. It must be positive.
	RequestTimeout time.Duration
	// WatchRetry is the maximum pause of Watch between two attempts. 0 means DefaultWatchRetry.
	WatchRetry time.Duration
}

// Deps are the dependencies of Services.
type Deps struct {
	// Client reads without a cache.
	Client client.Client
	// REST is the connection for Watch.
	REST *rest.Config
}

// Services manages the service instances and bindings of a cluster. It has no state and is safe for concurrent use.
type Services struct {
	cfg  Config
	deps Deps
}

// New creates a Services. It makes no request.
func New(cfg Config, deps Deps) *Services {
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

// api is the API group of both kinds (docs/contracts/btp-manager.md#operand).
var api = schema.GroupVersion{Group: "services.cloud.sap.com", Version: "v1"}

// meta returns the metadata of an object.
func (k kind) meta(namespace, name string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	o.SetGroupVersionKind(api.WithKind(k.name))
	return o
}

// object returns an object to read or delete. The answer to a deletion contains the object if it stays because of its finalizers, and a
// client for metadata treats that as an error.
func (k kind) object(namespace, name string) *unstructured.Unstructured {
	o := new(unstructured.Unstructured)
	o.SetGroupVersionKind(api.WithKind(k.name))
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// call runs a request with a timeout. A timeout always results in context.DeadlineExceeded, whatever error the client returns.
func (s *Services) call(ctx context.Context, request func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	err := request(limited)
	if err != nil && limited.Err() != nil && !errors.Is(err, limited.Err()) {
		return fmt.Errorf("%w: %w", limited.Err(), err)
	}
	return err
}
