package operand

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	crdGroup = "apiextensions.k8s.io"
	crdKind  = "CustomResourceDefinition"
	// shown is the number of custom resources in an InUseError.
	shown = 5
)

// InUseError means that a CustomResourceDefinition is not deleted, because its custom resources would be deleted with it.
type InUseError struct {
	// Definition is the CustomResourceDefinition.
	Definition Ref
	// First are up to five of its custom resources.
	First []Ref
	// More is the number of further ones.
	More int64
}

// Error returns the definition and the custom resources.
func (e *InUseError) Error() string {
	names := make([]string, 0, len(e.First))
	for _, r := range e.First {
		names = append(names, r.String())
	}
	more := ""
	if e.More > 0 {
		more = fmt.Sprintf(" and %d more", e.More)
	}
	return fmt.Sprintf("%s is not deleted: %s%s would go with it", e.Definition, strings.Join(names, ", "), more)
}

func (r Ref) isCRD() bool { return r.Group == crdGroup && r.Kind == crdKind }

// unused returns an *InUseError if ref is a CustomResourceDefinition with custom resources. It does not check a definition that is already
// being deleted.
func (o *Operand) unused(ctx context.Context, ref Ref) error {
	if !ref.isCRD() {
		return nil
	}
	crd, err := o.get(ctx, ref)
	if err != nil || crd == nil || crd.GetDeletionTimestamp() != nil {
		return err
	}
	gvk, ok := servedKind(crd)
	if !ok {
		return nil
	}
	page := new(metav1.PartialObjectMetadataList)
	page.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	if err := o.client.List(ctx, page, client.Limit(shown)); err != nil {
		if gone(err) {
			return nil
		}
		return fmt.Errorf("look for custom resources of %s: %w", ref, err)
	}
	if len(page.Items) == 0 {
		return nil
	}
	inUse := &InUseError{Definition: ref}
	for i := range page.Items {
		inUse.First = append(inUse.First, Ref{gvk.Group, gvk.Version, gvk.Kind, page.Items[i].Namespace, page.Items[i].Name})
	}
	if page.RemainingItemCount != nil {
		inUse.More = *page.RemainingItemCount
	}
	return inUse
}

// servedKind returns the kind of a CustomResourceDefinition in its first served version, or false if none is served.
func servedKind(crd *unstructured.Unstructured) (schema.GroupVersionKind, bool) {
	kind := definedKind(crd)
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		m, _ := v.(map[string]any)
		if served, _, _ := unstructured.NestedBool(m, "served"); served {
			name, _, _ := unstructured.NestedString(m, "name")
			return kind.WithVersion(name), true
		}
	}
	return schema.GroupVersionKind{}, false
}

func definedKind(crd *unstructured.Unstructured) schema.GroupKind {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	return schema.GroupKind{Group: group, Kind: kind}
}

// definedKinds returns the kinds that objs define, with their definitions.
func definedKinds(objs []*unstructured.Unstructured) map[schema.GroupKind]Ref {
	out := map[schema.GroupKind]Ref{}
	for _, obj := range objs {
		if ref := RefOf(obj); ref.isCRD() {
			out[definedKind(obj)] = ref
		}
	}
	return out
}

// established reports whether the API server serves the kind of a CustomResourceDefinition.
func (o *Operand) established(ctx context.Context, crd Ref) (bool, error) {
	live, err := o.get(ctx, crd)
	if err != nil || live == nil {
		return false, err
	}
	return unready(live) == "", nil
}
