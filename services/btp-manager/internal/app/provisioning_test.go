package app_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

func TestSecret_Missing_IsErrorUntilItExists(t *testing.T) {
	s := newSystem(t)
	s.start()
	o := s.operator("btpoperator")
	if m := s.await(o, v1alpha1.StateError, v1alpha1.ReasonMissingSecret); !strings.Contains(m, "kyma-system/sap-btp-manager") {
		t.Errorf("message %q does not name the Secret", m)
	}
	s.create(secret())
	s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	if !s.exists(deployment()) {
		t.Error("the operand's Deployment does not exist")
	}
}

func TestSecret_MissingKey_IsNamedInCondition(t *testing.T) {
	s := newSystem(t)
	s.start()
	o := s.operator("btpoperator")
	s.await(o, v1alpha1.StateError, v1alpha1.ReasonMissingSecret)
	for _, tt := range []struct {
		name   string
		change []string
		want   []string
	}{
		{"keys", []string{"cluster_id", "-", "clientsecret", "-"}, []string{"clientsecret", "cluster_id"}},
		{"values", []string{"cluster_id", "", "clientsecret", ""}, []string{"clientsecret", "cluster_id"}},
		{"both", []string{"sm_url", "-", "tokenurl", ""}, []string{"sm_url", "tokenurl"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := s.in(t)
			s.create(secret(tt.change...))
			if message := s.await(o, v1alpha1.StateError, v1alpha1.ReasonInvalidSecret); !containsAll(message, tt.want...) {
				t.Errorf("message %q does not name %q", message, tt.want)
			}
			s.delete(secret())
			s.await(o, v1alpha1.StateError, v1alpha1.ReasonMissingSecret)
			s.create(secret())
			s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
			s.delete(secret())
			s.await(o, v1alpha1.StateError, v1alpha1.ReasonMissingSecret)
		})
	}
}

func TestOperand_ImageVariable_IsUsed(t *testing.T) {
	s := newSystem(t)
	s.create(secret())
	o := s.operator("btpoperator")
	for _, tt := range []struct{ name, image, want string }{
		{"none", "", "ghcr.io/sap/sap-btp-service-operator/controller:v0.11.10"},
		{"with a tag", "registry.example.com:5000/a/operand:1.2.3", "registry.example.com:5000/a/operand:1.2.3"},
		{"with a digest", "registry.example.com/operand@sha256:" + digest, "registry.example.com/operand@sha256:" + digest},
		{"with both", "registry.example.com/operand:1@sha256:" + digest, "registry.example.com/operand:1@sha256:" + digest},
		{"with neither", "registry.example.com:5000/operand", "registry.example.com:5000/operand"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.image = tt.image
			s.start()
			defer s.stop()
			s := s.in(t)
			var got string
			defer func() {
				if t.Failed() {
					t.Logf("the image is %s", got)
				}
			}()
			testkit.Eventually(t, waitTimeout, "the image is "+tt.want, func() bool {
				d := deployment()
				if s.exists(d) {
					got = d.Spec.Template.Spec.Containers[0].Image
				}
				return got == tt.want
			})
			s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
		})
	}
}

func TestOperand_PullSecretsAndPorts_AreUsed(t *testing.T) {
	s := newSystem(t)
	s.settings.OperandPullSecrets, s.settings.OperandEgressPorts = "registry,mirror", "443,8443"
	s.start()
	s.provisioned()
	d := deployment()
	s.exists(d)
	want := []corev1.LocalObjectReference{{Name: "registry"}, {Name: "mirror"}}
	if diff := cmp.Diff(want, d.Spec.Template.Spec.ImagePullSecrets); diff != "" {
		t.Errorf("pull secrets (-want +got):\n%s", diff)
	}
	policy := new(networkingv1.NetworkPolicy)
	policy.Namespace, policy.Name = kymaSystem, "sap-btp-operator-allow-to-https"
	s.exists(policy)
	var ports []int
	for _, p := range policy.Spec.Egress[0].Ports {
		ports = append(ports, p.Port.IntValue())
	}
	if diff := cmp.Diff([]int{443, 8443}, ports); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
}

var digest = strings.Repeat("0123456789abcdef", 4)

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
	t.Run("an image that does not exist", func(t *testing.T) {
		s := s.in(t)
		d := deployment()
		s.exists(d)
		want := d.Spec.Template.Spec.Containers[0].Image
		s.patch(d, `{"spec":{"template":{"spec":{"containers":[{"name":"manager","image":"example.com/none:none"}]}}}}`)
		testkit.Eventually(t, waitTimeout, "the image is the old one", func() bool {
			return s.exists(d) && d.Spec.Template.Spec.Containers[0].Image == want && len(d.Spec.Template.Spec.Containers[0].EnvFrom) > 0
		})
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

// isDeployment reports whether a call concerns the operand's Deployment.
func isDeployment(o any) bool {
	named, ok := o.(interface{ GetName() string })
	return ok && named.GetName() == operandPod
}

func TestApply_RejectedObject_IsNamed(t *testing.T) {
	s := newSystem(t)
	seen := s.observe()
	var refused atomic.Bool
	refused.Store(true)
	seen.fail(func(verb string, o any) error {
		if verb == "apply" && refused.Load() && isDeployment(o) {
			return apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, operandPod, errors.New("a policy forbids it"))
		}
		return nil
	})
	s.start()
	s.create(secret())
	o := s.operator("btpoperator")
	named := []string{"Deployment kyma-system/" + operandPod, "a policy forbids it"}
	if message := s.await(o, v1alpha1.StateError, v1alpha1.ReasonChartInstallFailed); !containsAll(message, named...) {
		t.Errorf("message %q does not name the object and why", message)
	}
	if !s.exists(operandSecret(kymaSystem)) {
		t.Error("one object that was refused kept the others from being applied")
	}
	refused.Store(false)
	s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)

	refused.Store(true)
	s.poke(o)
	if message := s.await(o, v1alpha1.StateError, v1alpha1.ReasonConsistencyCheckFailed); !containsAll(message, named...) {
		t.Errorf("message %q does not name the object and why", message)
	}
	refused.Store(false)
	s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
}

func TestAPI_TemporaryErrors_AreRetried(t *testing.T) {
	s := newSystem(t)
	seen := s.observe()
	s.start()
	s.create(secret())
	resource := schema.GroupResource{Group: "operator.kyma-project.io", Resource: "btpoperators"}
	for _, tt := range []struct {
		name string
		err  error
	}{
		{"a conflict", apierrors.NewConflict(resource, "btpoperator", errors.New("the object has been modified"))},
		{"a timeout", apierrors.NewTimeoutError("slow", 1)},
		{"a server that is full", apierrors.NewTooManyRequests("busy", 1)},
		{"an internal error", apierrors.NewInternalError(errors.New("etcd has no leader"))},
		{"a server that is away", fmt.Errorf("dial: %w", syscall.ECONNREFUSED)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := s.in(t)
			failed := map[string]int{} // calls holds its lock meanwhile
			seen.fail(func(verb string, o any) error {
				if !slices.Contains([]string{"status", "apply", "delete"}, verb) || failed[verb] == 1 || verb == "apply" && !isDeployment(o) {
					return nil
				}
				failed[verb]++
				return tt.err
			})
			states := s.history(&v1alpha1.BtpOperator{ObjectMeta: metav1.ObjectMeta{Name: "btpoperator"}})
			o := s.operator("btpoperator")
			s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
			s.delete(o)
			s.wantHistory(states, "Processing/Initialized", ready, hard)
			seen.fail(nil)
			if len(failed) != 3 {
				t.Errorf("only %v failed", failed)
			}
		})
	}
}

func TestNetworkPolicies_Annotation_DisablesThem(t *testing.T) {
	s := newSystem(t)
	s.start()
	o := s.provisioned()
	policies := func() int {
		list := new(networkingv1.NetworkPolicyList)
		require.NoError(t, s.List(t.Context(), list, client.InNamespace(kymaSystem)))
		return len(list.Items)
	}
	for _, tt := range []struct {
		value string
		want  int
	}{{"true", 0}, {"", 4}, {"TRUE", 0}, {"false", 4}} {
		s.annotate(o, v1alpha1.DisableNetworkPoliciesAnnotation, tt.value)
		testkit.Eventually(t, waitTimeout, fmt.Sprintf("with the annotation %q there are %d", tt.value, tt.want), func() bool { return policies() == tt.want })
	}
	s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	s.annotate(o, v1alpha1.DisableNetworkPoliciesAnnotation, "true")
	testkit.Eventually(t, waitTimeout, "none is there", func() bool { return policies() == 0 })
	s.delete(o)
	s.awaitGone(o)
}

func TestBtpOperator_AnyNameAndNamespace_IsProvisioned(t *testing.T) {
	s := newSystem(t)
	s.start()
	s.create(secret())
	s.namespace("a-namespace")
	o := new(v1alpha1.BtpOperator)
	o.Namespace, o.Name = "a-namespace", "any.name"
	s.create(o)
	s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
	if !s.exists(deployment()) {
		t.Error("the operand's Deployment does not exist in kyma-system")
	}
	s.awaitEvent(o, "Normal", string(v1alpha1.ReasonReconcileSucceeded))
	s.delete(o)
	s.awaitGone(o)
}
