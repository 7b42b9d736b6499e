package app_test

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
)

// clusterID is the Secret in which the operand records the cluster ID of its first start.
func clusterID(namespace, id string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sap-btp-operator-clusterid"}, Data: map[string][]byte{"INITIAL_CLUSTER_ID": []byte(id)},
	}
}

// clearAfter removes the Secrets of a namespace when the test ends.
func (s *system) clearAfter(namespace string) {
	s.t.Helper()
	s.namespace(namespace)
	s.t.Cleanup(func() {
		if s.halt != nil {
			s.halt()
		}
		if err := s.DeleteAllOf(s.background(), new(corev1.Secret), client.InNamespace(namespace)); err != nil {
			s.t.Error(err)
		}
	})
}

// altered returns the names of the chart's objects whose content has changed.
func (s *system) altered(before map[string]string) []string {
	s.t.Helper()
	after := s.revisions()
	var names []string
	for name, version := range after {
		if before[name] != version {
			names = append(names, name)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// revisions returns the resource versions of the chart's objects. For the Deployment it returns the generation, because its status changes
// by itself.
func (s *system) revisions() map[string]string {
	s.t.Helper()
	out := map[string]string{}
	for name, o := range ofTheChart(s.made()) {
		out[name] = o.GetResourceVersion()
		if o.GetKind() == "Deployment" {
			out[name] = strconv.FormatInt(o.GetGeneration(), 10)
		}
	}
	return out
}

const (
	credentialsSecret = "Secret kyma-system/sap-btp-service-operator"
	operandDeployment = "Deployment kyma-system/" + operandPod
)

func TestOperand_SecretChanges_IsUpdated(t *testing.T) {
	s := newSystem(t)
	seen := s.observe()
	s.start()
	o := s.provisioned()
	seen.settle(t)
	read := func(s *system) map[string]string {
		out := map[string]string{}
		o := operandSecret(kymaSystem)
		s.exists(o)
		for key, value := range o.Data {
			out[key] = string(value)
		}
		return out
	}
	want := map[string]string{
		"clientid": "a-client", "clientsecret": "a-secret", "sm_url": "https://sm.example.com", "tokenurl": "https://auth.example.com",
		"tokenurlsuffix": "/oauth/token",
	}
	if diff := cmp.Diff(want, read(s)); diff != "" {
		t.Errorf("the operand's Secret (-want +got):\n%s", diff)
	}
	if got := s.operandConfig(); got["CLUSTER_ID"] != "a-cluster" || got["MANAGEMENT_NAMESPACE"] != kymaSystem || got["RELEASE_NAMESPACE"] != kymaSystem {
		t.Errorf("the operand's ConfigMap holds %v", got)
	}

	for _, tt := range []struct {
		name   string
		change []string
		secret map[string]string
		// These objects change. New credentials reach the operand's pods only at their start.
		altered []string
	}{
		{"the client ID", []string{"clientid", "another-client"}, map[string]string{"clientid": "another-client"}, []string{operandDeployment, credentialsSecret}},
		{
			"all credentials",
			[]string{"clientid", "c", "clientsecret", "s", "sm_url", "https://sm2.example.com", "tokenurl", "https://auth2.example.com"},
			map[string]string{"clientid": "c", "clientsecret": "s", "sm_url": "https://sm2.example.com", "tokenurl": "https://auth2.example.com"},
			[]string{operandDeployment, credentialsSecret},
		},
		{"a key of its own", []string{"more", "of the same"}, map[string]string{"more": "of the same"}, []string{operandDeployment, credentialsSecret}},
		{"a key taken away", []string{"more", "-"}, map[string]string{"more": "-"}, []string{operandDeployment, credentialsSecret}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := s.in(t)
			seen.settle(t)
			before := s.revisions()
			s.change(tt.change...)
			testkit.Eventually(t, waitTimeout, "the change of all that is to change", func() bool {
				altered := s.altered(before)
				return !slices.ContainsFunc(tt.altered, func(name string) bool { return !slices.Contains(altered, name) })
			})
			seen.settle(t)
			if diff := cmp.Diff(tt.altered, s.altered(before)); diff != "" {
				t.Errorf("objects that changed (-want +got):\n%s", diff)
			}
			maps.Copy(want, tt.secret)
			maps.DeleteFunc(want, func(_, value string) bool { return value == "-" })
			if diff := cmp.Diff(want, read(s)); diff != "" {
				t.Errorf("the operand's Secret (-want +got):\n%s", diff)
			}
			s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
		})
	}
	t.Run("the cluster ID", func(t *testing.T) {
		s := s.in(t)
		s.change("cluster_id", "another-cluster")
		s.awaitEvent(o, "Normal", string(v1alpha1.ReasonClusterIDChanged))
		s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
		if got := s.operandConfig()["CLUSTER_ID"]; got != "another-cluster" {
			t.Errorf("CLUSTER_ID is %q", got)
		}
	})
	t.Run("a Secret that says the same changes nothing", func(t *testing.T) {
		s := s.in(t)
		seen.settle(t)
		before, passes := s.revisions(), seen.passes()
		s.annotate(secret(), "example.com/note", "the same")
		seen.more(t, passes)
		seen.settle(t)
		if got := s.altered(before); len(got) > 0 {
			t.Errorf("changed: %q", got)
		}
	})
}

func TestCredentials_NewNamespace_AreMoved(t *testing.T) {
	s := newSystem(t)
	s.clearAfter("one")
	s.clearAfter("two")
	s.start()
	o := s.provisioned()
	// The operand records this at its start.
	s.create(clusterID(kymaSystem, "a-cluster"))

	for _, tt := range []struct {
		name, from, to string
		change         []string
		id             string
	}{
		{"to a namespace of their own", kymaSystem, "one", []string{"credentials_namespace", "one"}, "a-cluster"},
		{
			"to another one, with all the rest", "one", "two",
			[]string{"credentials_namespace", "two", "cluster_id", "b-cluster", "clientid", "b-client"},
			"b-cluster",
		},
		{"back", "two", kymaSystem, []string{"credentials_namespace", "-", "clientid", "a-client"}, "b-cluster"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := s.in(t)
			s.change(tt.change...)
			testkit.Eventually(t, waitTimeout, "the operand's ConfigMap names the namespace "+tt.to, func() bool {
				c := s.operandConfig()
				return c["MANAGEMENT_NAMESPACE"] == tt.to && c["RELEASE_NAMESPACE"] == tt.to && c["CLUSTER_ID"] == tt.id
			})
			s.awaitGone(operandSecret(tt.from))
			s.awaitGone(clusterID(tt.from, ""))
			s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
			there := operandSecret(tt.to)
			if !s.exists(there) || there.Labels["app.kubernetes.io/managed-by"] != "btp-manager" {
				t.Errorf("the operand's Secret in %s has the labels %v", tt.to, there.Labels)
			}
			s.awaitEvent(o, "Normal", string(v1alpha1.ReasonCredentialsNamespaceChanged))
			s.create(clusterID(tt.to, tt.id))
		})
	}
	t.Run("and go with the operand", func(t *testing.T) {
		s := s.in(t)
		s.change("credentials_namespace", "one")
		testkit.Eventually(t, waitTimeout, "the Secret moves", func() bool { return s.exists(operandSecret("one")) })
		s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
		s.create(clusterID("one", "b-cluster"))
		s.delete(o)
		s.awaitGone(o)
		for _, left := range []*corev1.Secret{operandSecret("one"), clusterID("one", "")} {
			if s.exists(left) {
				t.Errorf("the Secret %s/%s is left", left.Namespace, left.Name)
			}
		}
	})
}

func TestCredentials_MissingNamespace_IsNamed(t *testing.T) {
	s := newSystem(t)
	s.start()
	s.create(secret("credentials_namespace", "nowhere"))
	o := s.operator("btpoperator")
	message := s.await(o, v1alpha1.StateError, v1alpha1.ReasonChartInstallFailed)
	if !containsAll(message, "nowhere", "Secret nowhere/sap-btp-service-operator") {
		t.Errorf("message %q does not name the namespace", message)
	}
	s.change("credentials_namespace", "-")
	s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
}

func TestOperand_ClusterIDOfEarlierStart_IsRemoved(t *testing.T) {
	s := newSystem(t)
	s.start()
	o := s.provisioned()
	s.create(clusterID(kymaSystem, "an-older-cluster"))

	t.Run("an operand that runs is left alone", func(t *testing.T) {
		s := s.in(t)
		before := deployment()
		s.exists(before)
		passes := s.metric("reconciles_total", "outcome", "done")
		s.poke(o)
		testkit.Eventually(t, waitTimeout, "BTP Manager has looked", func() bool { return s.metric("reconciles_total", "outcome", "done") > passes })
		after := deployment()
		if !s.exists(clusterID(kymaSystem, "")) || !s.exists(after) || after.Generation != before.Generation {
			t.Error("the cluster ID is gone, or the operand was restarted")
		}
	})
	t.Run("one that does not start gets rid of it", func(t *testing.T) {
		s := s.in(t)
		s.deployments.Hold()
		s.awaitGone(clusterID(kymaSystem, ""))
		d := deployment()
		testkit.Eventually(t, waitTimeout, "the operand is restarted", func() bool {
			return s.exists(d) && d.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] != ""
		})
		s.deployments.Release()
		s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
		s.awaitEvent(o, "Normal", "ClusterIDRemoved")
	})
	t.Run("one that is its own stays", func(t *testing.T) {
		s := s.in(t)
		s.create(clusterID(kymaSystem, "a-cluster"))
		s.deployments.Hold()
		s.await(o, v1alpha1.StateProcessing, v1alpha1.ReasonInitialized)
		s.deployments.Release()
		s.await(o, v1alpha1.StateReady, v1alpha1.ReasonReconcileSucceeded)
		if !s.exists(clusterID(kymaSystem, "")) {
			t.Error("it is gone")
		}
	})
}

// Without the operand, users cannot delete the service instances that block the deletion.
func TestDeletion_Blocked_FollowsCredentials(t *testing.T) {
	s := newSystem(t)
	s.clearAfter("credentials")
	s.settings.BlockDeletion = true
	s.start()
	o := s.provisioned()
	s.namespace("users")
	s.serviceInstance("users", "an-instance")
	s.delete(o)
	s.await(o, v1alpha1.StateWarning, v1alpha1.ReasonNotCleaned)
	t.Run("to another cluster ID", func(t *testing.T) {
		s := s.in(t)
		s.create(clusterID(kymaSystem, "a-cluster"))
		s.deployments.Hold()
		s.change("cluster_id", "b-cluster")
		s.awaitGone(clusterID(kymaSystem, ""))
		s.awaitEvent(o, "Normal", "ClusterIDRemoved")
		s.deployments.Release()
	})
	t.Run("to another namespace", func(t *testing.T) {
		s := s.in(t)
		s.create(clusterID(kymaSystem, "b-cluster"))
		s.change("credentials_namespace", "credentials")
		s.awaitGone(clusterID(kymaSystem, ""))
		s.awaitGone(operandSecret(kymaSystem))
		testkit.Eventually(t, waitTimeout, "the Secret is moved", func() bool { return s.exists(operandSecret("credentials")) })
	})
	s.await(o, v1alpha1.StateWarning, v1alpha1.ReasonNotCleaned)
}
