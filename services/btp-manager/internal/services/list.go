package services

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// pageSize is the number of objects in a page.
	pageSize = 500
	// listTries is how often a list is restarted because its continue token has expired.
	listTries = 3
)

// item holds the required data of an instance or a binding.
type item struct {
	namespace, name string
	// marked means that its deletion is requested; held means that it has finalizers.
	marked, held bool
}

// list returns all objects of a kind, and none if the cluster does not serve the kind.
func (s *Services) list(ctx context.Context, k kind) ([]item, error) {
	for try := 1; ; try++ {
		items, err := s.pages(ctx, k)
		switch {
		case err == nil:
			return items, nil
		case absent(err):
			return nil, nil
		case apierrors.IsResourceExpired(err) && try < listTries:
			continue
		}
		return nil, fmt.Errorf("list %s: %w", k.resource, err)
	}
}

func (s *Services) pages(ctx context.Context, k kind) ([]item, error) {
	var items []item
	for next := ""; ; {
		page := new(metav1.PartialObjectMetadataList)
		page.SetGroupVersionKind(api.WithKind(k.name + "List"))
		err := s.call(ctx, func(ctx context.Context) error {
			return s.deps.Client.List(ctx, page, client.Limit(pageSize), client.Continue(next))
		})
		if err != nil {
			return nil, err
		}
		for _, o := range page.Items {
			items = append(items, item{
				namespace: o.Namespace, name: o.Name, marked: o.DeletionTimestamp != nil, held: len(o.Finalizers) > 0,
			})
		}
		if next = page.Continue; next == "" {
			return items, nil
		}
	}
}
