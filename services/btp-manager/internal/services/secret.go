package services

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// managedBy is the label with the manager of a Secret.
const managedBy = "app.kubernetes.io/managed-by"

// secret is the Secret of a binding.
type secret struct {
	binding types.UID
	found   *metav1.PartialObjectMetadata
}

// deleteSecretOf deletes the Secret of a binding, if there is one.
func (s *Services) deleteSecretOf(ctx context.Context, it item) error {
	found, err := s.secretOf(ctx, it)
	if err != nil || found == nil {
		return err
	}
	return s.deleteSecret(ctx, found)
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

// deleteSecret deletes the Secret that was found, unless it was replaced since.
func (s *Services) deleteSecret(ctx context.Context, found *metav1.PartialObjectMetadata) error {
	o := new(unstructured.Unstructured)
	o.SetGroupVersionKind(found.GroupVersionKind())
	o.SetNamespace(found.Namespace)
	o.SetName(found.Name)
	err := s.call(ctx, func(ctx context.Context) error {
		return s.deps.Client.Delete(ctx, o, client.Preconditions{UID: &found.UID})
	})
	if absent(err) {
		return nil
	}
	return err
}

// secretsOf returns the Secrets of the bindings without finalizers. Such bindings are gone as soon as they are deleted, and with them the
// names of their Secrets.
func (s *Services) secretsOf(ctx context.Context, bindings []item, t *tally) []secret {
	var free []item
	for _, it := range bindings {
		if !it.held {
			free = append(free, it)
		}
	}
	var (
		mu      sync.Mutex
		secrets []secret
	)
	s.each(ctx, len(free), func(ctx context.Context, i int) {
		found, err := s.secretOf(ctx, free[i])
		if err != nil {
			t.add("find the Secret of ServiceBinding "+free[i].namespace+"/"+free[i].name, err)
			return
		}
		if found != nil {
			mu.Lock()
			defer mu.Unlock()
			secrets = append(secrets, secret{binding: free[i].uid, found: found})
		}
	})
	return secrets
}

// deleteSecrets deletes the Secrets of deleted bindings.
func (s *Services) deleteSecrets(ctx context.Context, secrets []secret, bindings []item, t *tally) {
	alive := make(map[types.UID]bool, len(bindings))
	for _, it := range bindings {
		alive[it.uid] = true
	}
	s.each(ctx, len(secrets), func(ctx context.Context, i int) {
		if found := secrets[i].found; !alive[secrets[i].binding] {
			t.add("delete Secret "+found.Namespace+"/"+found.Name, s.deleteSecret(ctx, found))
		}
	})
}
