package e2e_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

// inventory finds objects of all kinds that the API server serves.
type inventory struct {
	t         *testing.T
	discovery *discovery.DiscoveryClient
	metadata  metadata.Interface
}

// found is an object of any kind.
type found struct {
	schema.GroupVersionResource
	namespace, name string
}

func (f found) String() string {
	return f.Resource + " " + strings.TrimPrefix(f.namespace+"/"+f.name, "/")
}

func newInventory(t *testing.T, c *kubetest.Cluster) *inventory {
	t.Helper()
	cfg := rest.CopyConfig(c.Config)
	cfg.WarningHandler = rest.NoWarnings{} // of kinds that are deprecated
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	require.NoError(t, err)
	m, err := metadata.NewForConfig(cfg)
	require.NoError(t, err)
	return &inventory{t, d, m}
}

func (i *inventory) in(t *testing.T) *inventory { return &inventory{t, i.discovery, i.metadata} }

// ours lists all objects with the manager's label, in all namespaces.
func (i *inventory) ours(ctx context.Context) []found {
	return i.labelled(ctx, "app.kubernetes.io/managed-by=btp-manager")
}

// labelled lists all objects with a label, in all namespaces.
func (i *inventory) labelled(ctx context.Context, label string) []found {
	i.t.Helper()
	var groups []*metav1.APIResourceList
	// While an API group is added or removed, the API server does not answer for all groups.
	testkit.Eventually(i.t, waitTimeout, "the list of all kinds", func() bool {
		var err error
		groups, err = i.discovery.ServerPreferredResources()
		return err == nil
	})
	var all []found
	for _, g := range groups {
		gv, err := schema.ParseGroupVersion(g.GroupVersion)
		if err != nil {
			i.t.Fatal(err)
		}
		for _, r := range g.APIResources {
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			gvr := gv.WithResource(r.Name)
			list, err := i.metadata.Resource(gvr).List(ctx, metav1.ListOptions{LabelSelector: label})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue // a kind that is being removed
			}
			if err != nil {
				i.t.Fatalf("list %s: %v", gvr.GroupResource(), err)
			}
			for _, o := range list.Items {
				all = append(all, found{gvr, o.Namespace, o.Name})
			}
		}
	}
	return all
}

// remove deletes an object regardless of its finalizers.
func (i *inventory) remove(ctx context.Context, o found) {
	i.t.Helper()
	objects := i.metadata.Resource(o.GroupVersionResource).Namespace(o.namespace)
	err := objects.Delete(ctx, o.name, metav1.DeleteOptions{})
	if err == nil && o.Resource != "customresourcedefinitions" {
		_, err = objects.Patch(ctx, o.name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		i.t.Fatalf("remove %s: %v", o, err)
	}
}
