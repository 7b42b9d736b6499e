package app_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

func TestProvision_ObjectNotReady_IsNamed(t *testing.T) {
	s := newSystem(t)
	forward := s.clock()
	s.start()
	s.deployments.Hold()
	s.create(secret())
	o := s.operator("btpoperator")
	notReady := "Deployment kyma-system/" + operandPod
	s.until(o, "the message names what is not ready", func() bool {
		return o.Status.State == v1alpha1.StateProcessing && strings.Contains(o.Status.Conditions[0].Message, notReady)
	})
	forward(s.settings.ReadyTimeout)
	if message := s.await(o, v1alpha1.StateError, v1alpha1.ReasonChartInstallFailed); !containsAll(message, notReady, s.settings.ReadyTimeout.String(), "Available") {
		t.Errorf("message %q does not name the object, the time and what is wrong", message)
	}
	s.awaitMetric(1, "resources_not_ready", "kind", "Deployment")
	s.deployments.Release()
	s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	s.awaitMetric(0, "resources_not_ready", "kind", "Deployment")

	t.Run("a Deployment that is deleted", func(t *testing.T) {
		s := s.in(t)
		s.deployments.Hold()
		s.delete(deployment())
		s.await(o, v1alpha1.StateProcessing, v1alpha1.ReasonInitialized)
		s.deployments.Release()
		s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	})
	t.Run("a CustomResourceDefinition that is deleted", func(t *testing.T) {
		s := s.in(t)
		crd := new(unstructured.Unstructured)
		crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		crd.SetName("servicebindings.services.cloud.sap.com")
		s.exists(crd)
		before := crd.GetUID()
		s.delete(crd)
		testkit.Eventually(t, waitTimeout, "it comes back", func() bool { return s.exists(crd) && crd.GetUID() != before })
		s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
		s.namespace("users")
		s.serviceBinding("users", "a-binding")
	})
}
