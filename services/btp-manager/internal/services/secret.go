package services

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// managedBy is the label with the manager of a Secret.
const managedBy = "app.kubernetes.io/managed-by"

// deleteSecretOf deletes the Secret of a binding, if there is one, unless it was replaced since it was found.
func (s *Services) deleteSecretOf(ctx context.Context, it item) error {
	found, err := s.secretOf(ctx, it)
	if err != nil {
		return readError{err}
	}
	if found == nil {
		return nil
	}
	o := new(unstructured.Unstructured)
	o.SetGroupVersionKind(found.GroupVersionKind())
	o.SetNamespace(found.Namespace)
	o.SetName(found.Name)
	err = s.call(ctx, func(ctx context.Context) error {
		return s.deps.Client.Delete(ctx, o, client.Preconditions{UID: &found.UID})
	})
	if absent(err) {
		return nil
	}
	return err
}

// secretOf returns the Secret of a binding: the one in spec.secretName, or the one with the binding's name. The binding must own it, or it
// must have neither an owner nor a manager. It returns nil if there is none. It does not read the Secret's data.
func (s *Services) secretOf(ctx context.Context, it item) (*metav1.PartialObjectMetadata, error) {
	b := binding.object("", "")
	err := s.call(ctx, func(ctx context.Context) error {
		return s.deps.Client.Get(ctx, client.ObjectKey{Namespace: it.namespace, Name: it.name}, b)
	})
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the binding: %w", err)
	}
	name, _, _ := unstructured.NestedString(b.Object, "spec", "secretName")
	if name == "" {
		name = it.name
	}
	found := new(metav1.PartialObjectMetadata)
	found.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
	err = s.call(ctx, func(ctx context.Context) error {
		return s.deps.Client.Get(ctx, client.ObjectKey{Namespace: it.namespace, Name: name}, found)
	})
	if absent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the Secret's metadata: %w", err)
	}
	for _, owner := range found.OwnerReferences {
		if owner.UID == b.GetUID() {
			return found, nil
		}
	}
	if len(found.OwnerReferences) > 0 || found.Labels[managedBy] != "" {
		return nil, nil
	}
	return found, nil
}
