// Package operand applies the objects of the operand's chart to the cluster, keeps them in line with the chart, reports which are not
// ready, and removes them.
//
// No function waits. Each call does what is possible now and returns what is left, so that after a crash another process can continue. The
// ConfigMap btp-manager-inventory stores the data that this needs.
package operand

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/services/btp-manager/internal/render"
)

// Ref identifies an object in the cluster.
type Ref struct {
	// Group is empty for the core group.
	Group string
	// Version is the API version in which the object is read and written. Two Refs that differ only in it identify the same object.
	Version string
	Kind    string
	// Namespace is empty for a cluster-scoped object.
	Namespace string
	Name      string
}

// String returns the Ref for users: "Deployment kyma-system/x", or "ClusterRole x".
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// GroupVersionKind returns the kind of the object.
func (r Ref) GroupVersionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
}

// RefOf returns the Ref of obj, whose kind must be set.
func RefOf(obj client.Object) Ref {
	gvk := obj.GetObjectKind().GroupVersionKind()
	return Ref{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// identity returns the Ref without its version.
func (r Ref) identity() Ref {
	r.Version = ""
	return r
}

func (r Ref) key() client.ObjectKey { return client.ObjectKey{Namespace: r.Namespace, Name: r.Name} }

// Config describes the operand.
type Config struct {
	// Namespace holds the inventory and the namespaced objects of the chart. Empty means kyma-system.
	Namespace string
}

const (
	// fieldOwner is the field manager of everything applied.
	fieldOwner = "btp-manager"
	// The names of the operand's Deployment and webhook configurations.
	deployment        = "sap-btp-operator-controller-manager"
	mutatingWebhook   = "sap-btp-operator-mutating-webhook-configuration"
	validatingWebhook = "sap-btp-operator-validating-webhook-configuration"
)

// own are additional objects of BTP Manager, the Secrets with certificates. Apply never removes them as obsolete; Remove removes them if they
// have our label.
func (o *Operand) own() []Ref {
	return []Ref{o.secret("ca-server-cert"), o.secret("webhook-server-cert")}
}

// product is the object that the operand creates beside its credentials, without our label. Remove removes it
// (docs/contracts/btp-manager.md#deprovisioning): with it, a new operand would not start with another cluster ID.
func (o *Operand) product() Ref { return o.secret("sap-btp-operator-clusterid") }

func (o *Operand) secret(name string) Ref {
	return Ref{Version: "v1", Kind: "Secret", Namespace: o.cfg.Namespace, Name: name}
}

// Deps are the dependencies of an Operand.
type Deps struct {
	// Client reads without a cache, because missing data in a cache would lead to wrong writes or leftover objects.
	Client client.Client
}

// Operand manages the operand in one cluster. It is not safe for concurrent use: the caller is the elected leader and handles one
// BtpOperator at a time.
type Operand struct {
	cfg    Config
	client client.Client
}

// New creates an Operand.
func New(cfg Config, deps Deps) *Operand {
	cfg.Namespace = cmp.Or(cfg.Namespace, "kyma-system")
	return &Operand{cfg: cfg, client: deps.Client}
}

// get reads an object. It returns nil if the object or its kind does not exist.
func (o *Operand) get(ctx context.Context, ref Ref) (*unstructured.Unstructured, error) {
	obj := new(unstructured.Unstructured)
	obj.SetGroupVersionKind(ref.GroupVersionKind())
	if err := o.client.Get(ctx, ref.key(), obj); err != nil {
		if gone(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read %s: %w", ref, err)
	}
	return obj, nil
}

// getMeta reads an object's metadata. It returns nil if the object or its kind does not exist.
func (o *Operand) getMeta(ctx context.Context, ref Ref) (*metav1.PartialObjectMetadata, error) {
	obj := new(metav1.PartialObjectMetadata)
	obj.SetGroupVersionKind(ref.GroupVersionKind())
	if err := o.client.Get(ctx, ref.key(), obj); err != nil {
		if gone(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read %s: %w", ref, err)
	}
	return obj, nil
}

// delete deletes the object that was read, unless it was replaced since. A missing object is not an error.
func (o *Operand) delete(ctx context.Context, ref Ref, obj client.Object) error {
	uid := obj.GetUID()
	// The client for metadata cannot decode the answer if the object stays because of its finalizers.
	target := new(unstructured.Unstructured)
	target.SetGroupVersionKind(ref.GroupVersionKind())
	target.SetNamespace(ref.Namespace)
	target.SetName(ref.Name)
	err := o.client.Delete(ctx, target, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !gone(err) {
		return fmt.Errorf("delete %s: %w", ref, err)
	}
	return nil
}

// gone reports whether the object, or its kind, does not exist.
func gone(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// ours reports whether an object belongs to the operand. No other object is ever deleted.
func ours(obj client.Object) bool { return obj.GetLabels()[render.ManagedByLabel] == render.ManagedBy }

// check rejects objects that could be applied, but not be found or removed later.
func check(objs []*unstructured.Unstructured) error {
	var errs []error
	seen := map[Ref]bool{}
	for _, obj := range objs {
		ref := RefOf(obj)
		switch {
		case ref.Version == "" || ref.Kind == "" || ref.Name == "":
			errs = append(errs, fmt.Errorf("an object has no apiVersion, kind or name: %s", ref))
		case !ours(obj):
			errs = append(errs, fmt.Errorf("%s has no label %s=%s: it could not be removed again", ref, render.ManagedByLabel, render.ManagedBy))
		case seen[ref.identity()]:
			errs = append(errs, fmt.Errorf("%s is duplicated", ref))
		}
		seen[ref.identity()] = true
	}
	return errors.Join(errs...)
}
