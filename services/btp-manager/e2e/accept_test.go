package e2e_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestChart_APIServer_AcceptsIt(t *testing.T) { //nolint:paralleltest // it shares a cluster
	c := client.WithFieldValidation(shared.Cluster(t).Client(t, client.Options{Scheme: knownTypes(t)}), metav1.FieldValidationStrict)
	for name, values := range valueSets() {
		for _, o := range rendered(t, values) {
			if o.GetObjectKind().GroupVersionKind().Group == "monitoring.coreos.com" {
				continue // this cluster does not serve them
			}
			if in := o.GetNamespace(); in != "" {
				namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: in}}
				require.NoError(t, client.IgnoreAlreadyExists(c.Create(t.Context(), namespace)))
			}
			// The API server validates an object before it looks for an existing one.
			if err := client.IgnoreAlreadyExists(c.Create(t.Context(), o, client.DryRunAll)); err != nil {
				t.Errorf("%s: %s: %v", name, describe(o), err)
			}
		}
	}
}
