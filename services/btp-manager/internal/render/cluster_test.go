package render_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/btp-manager/internal/render"
)

const (
	owner = client.FieldOwner("btp-manager")
	wait  = 90 * time.Second
)

// cluster is a kube-apiserver with the prerequisites of the operand: its namespaces, which accept only pods without privileges, and the
// priority class.
func cluster(t *testing.T) client.Client {
	t.Helper()
	c := client.WithFieldValidation(shared.Cluster(t).Client(t, client.Options{Scheme: scheme()}), metav1.FieldValidationStrict)
	for _, name := range []string{"kyma-system", "credentials", "apps", "data"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
		create(t, c, ns)
	}
	priority := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "kyma-system"}, Value: 99}
	create(t, c, priority)
	return c
}

func create(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func apply(ctx context.Context, c client.Client, o *unstructured.Unstructured, opts ...client.ApplyOption) error {
	opts = append(opts, owner, client.ForceOwnership)
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), opts...)
}

// install applies objs for this test. It omits webhooks that are not served.
func install(t *testing.T, c client.Client, objs []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objs {
		require.NoErrorf(t, apply(t.Context(), c, o.DeepCopy()), "%s %s", o.GetKind(), o.GetName())
		t.Cleanup(func() {
			if err := client.IgnoreNotFound(c.Delete(context.Background(), o.DeepCopy())); err != nil {
				t.Error(err)
			}
			// A definition is removed shortly after its deletion, and the next test may create it again.
			testkit.Eventually(t, wait, "the end of "+o.GetName(), func() bool {
				return apierrors.IsNotFound(c.Get(context.Background(), client.ObjectKeyFromObject(o), o.DeepCopy()))
			})
		})
	}
}

func TestOperand_KubeAPIServer_AcceptsIt(t *testing.T) {
	c := cluster(t)
	for name, v := range sets() {
		t.Run(name, func(t *testing.T) {
			for _, o := range renderOperand(t, v) {
				if err := apply(t.Context(), c, o, client.DryRunAll); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
		})
	}
}

// A value that the server stores in another form, such as 1000m for 1, would permanently look like drift.
func TestOperand_SecondApply_ChangesNothing(t *testing.T) {
	c := cluster(t)
	objs := renderOperand(t, usual())
	install(t, c, objs)
	for _, o := range objs {
		before := o.DeepCopy()
		require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), before))
		after := o.DeepCopy()
		require.NoError(t, apply(t.Context(), c, after))
		if o.GetKind() != "CustomResourceDefinition" && before.GetResourceVersion() != after.GetResourceVersion() {
			t.Errorf("%s %s was changed", o.GetKind(), o.GetName())
		}
	}
}

func TestOperand_Pod_HasNoPrivileges(t *testing.T) {
	c := cluster(t)
	d := &appsv1.Deployment{}
	for _, o := range renderOperand(t, usual()) {
		if o.GetKind() == "Deployment" {
			d = strict(t, o).(*appsv1.Deployment)
		}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kyma-system", Name: "p"}, Spec: d.Spec.Template.Spec}
	if err := c.Create(t.Context(), pod.DeepCopy(), client.DryRunAll); err != nil {
		t.Errorf("the pod is refused: %v", err)
	}
	pod.Spec.Containers[0].SecurityContext = nil
	if err := c.Create(t.Context(), pod, client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("the test lets every pod through: %v", err)
	}
}

func TestOperand_Roles_AllowOnlyNeeds(t *testing.T) {
	c := cluster(t)
	var roles []*unstructured.Unstructured
	for _, o := range renderOperand(t, usual()) {
		if strings.Contains(o.GetAPIVersion(), "rbac") || o.GetKind() == "ServiceAccount" {
			roles = append(roles, o)
		}
	}
	install(t, c, roles)
	may := func(verb, group, resource, namespace string) bool {
		resource, sub, _ := strings.Cut(resource, "/")
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:kyma-system:sap-btp-operator",
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: group, Resource: resource, Subresource: sub, Namespace: namespace, Name: "x",
			},
		}}
		require.NoError(t, c.Create(t.Context(), review))
		return review.Status.Allowed
	}
	const services, leases = "services.cloud.sap.com", "coordination.k8s.io"
	for _, a := range []struct {
		verb, group, resource, namespace string
		want                             bool
	}{
		{"list", services, "serviceinstances", "", true},
		{"update", services, "serviceinstances", "apps", true},
		{"update", services, "serviceinstances/status", "apps", true},
		{"update", services, "servicebindings/finalizers", "apps", true},
		{"create", services, "servicebindings", "apps", true},
		{"deletecollection", services, "servicebindings", "apps", false},
		{"create", "", "secrets", "apps", true},
		{"watch", "", "secrets", "", true},
		{"create", "", "events", "apps", true},
		{"delete", "", "events", "apps", false},
		{"update", leases, "leases", "kyma-system", true},
		{"update", leases, "leases", "kube-system", false},
		{"delete", leases, "leases", "kyma-system", false},
		{"get", "", "configmaps", "kyma-system", false},
		{"get", "", "pods", "kyma-system", false},
		{"update", "apps", "deployments", "kyma-system", false},
		{"update", "apiextensions.k8s.io", "customresourcedefinitions", "", false},
		{"update", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", false},
	} {
		// The server applies a new role shortly after its creation.
		if a.want {
			testkit.Eventually(t, wait, "the operand may "+a.verb+" "+a.resource, func() bool { return may(a.verb, a.group, a.resource, a.namespace) })
		} else if may(a.verb, a.group, a.resource, a.namespace) {
			t.Errorf("the operand may %s %s in %q", a.verb, a.resource, a.namespace)
		}
	}
}

func TestOperand_Definitions_ValidateObjects(t *testing.T) {
	c := cluster(t)
	var crds []*unstructured.Unstructured
	for _, o := range renderOperand(t, usual()) {
		if o.GetKind() == "CustomResourceDefinition" {
			crds = append(crds, o)
		}
	}
	install(t, c, crds)
	for _, crd := range crds {
		// The server may report a definition as established shortly before it lists the kind.
		spec := strict(t, crd).(*apiextensionsv1.CustomResourceDefinition).Spec
		testkit.Eventually(t, wait, crd.GetName()+" is served", func() bool {
			for _, version := range spec.Versions {
				kind := schema.GroupVersionKind{Group: spec.Group, Version: version.Name, Kind: spec.Names.Kind}
				list := new(unstructured.UnstructuredList)
				list.SetGroupVersionKind(kind)
				if err := c.List(t.Context(), list); err != nil {
					return false
				}
			}
			return true
		})
	}
	object := func(version, kind string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "services.cloud.sap.com/" + version, "kind": kind,
			"metadata": map[string]any{"namespace": "apps", "name": "x"}, "spec": spec,
		}}
	}
	instance := func(change map[string]any) *unstructured.Unstructured {
		spec := map[string]any{"serviceOfferingName": "xsuaa", "servicePlanName": "application"}
		maps.Copy(spec, change)
		return object("v1", "ServiceInstance", spec)
	}
	user := map[string]any{"username": "u", "uid": "1", "groups": []any{"g"}, "extra": map[string]any{"scopes": []any{"s"}}}
	from := []any{map[string]any{"secretKeyRef": map[string]any{"name": "s", "key": "k"}}}
	free := map[string]any{"any": map[string]any{"depth": []any{int64(1), "two", true}}}
	for name, test := range map[string]struct {
		o    *unstructured.Unstructured
		want string // part of the error, empty if the object is accepted
	}{
		"instance": {instance(nil), ""},
		"instance with everything": {instance(map[string]any{
			"servicePlanID": "id", "dataCenter": "eu10", "externalName": strings.Repeat("x", 100), "shared": true, "parameters": free, "parametersFrom": from,
			"watchParametersFromChanges": true, "customTags": []any{"t"}, "userInfo": user, "btpAccessCredentialsSecret": "s",
		}), ""},
		"instance of the older version":        {object("v1alpha1", "ServiceInstance", map[string]any{"serviceOfferingName": "a", "servicePlanName": "b"}), ""},
		"instance without an offering":         {instance(map[string]any{"serviceOfferingName": ""}), "spec.serviceOfferingName"},
		"instance without a plan":              {object("v1", "ServiceInstance", map[string]any{"serviceOfferingName": "a"}), "spec.servicePlanName: Required"},
		"older instance without an offering":   {object("v1alpha1", "ServiceInstance", map[string]any{"serviceOfferingName": "", "servicePlanName": "b"}), "spec.serviceOfferingName"},
		"instance with a long external name":   {instance(map[string]any{"externalName": strings.Repeat("x", 101)}), "spec.externalName"},
		"instance with half a reference":       {instance(map[string]any{"parametersFrom": []any{map[string]any{"secretKeyRef": map[string]any{"name": "s"}}}}), "secretKeyRef.key: Required"},
		"instance with a field of its own":     {instance(map[string]any{"servicePlan": "x"}), "spec.servicePlan"},
		"binding":                              {object("v1", "ServiceBinding", map[string]any{"serviceInstanceName": "x"}), ""},
		"binding of the older version":         {object("v1alpha1", "ServiceBinding", map[string]any{"serviceInstanceName": "x"}), ""},
		"binding of no instance":               {object("v1", "ServiceBinding", map[string]any{"serviceInstanceName": ""}), "spec.serviceInstanceName"},
		"binding without an instance":          {object("v1", "ServiceBinding", map[string]any{"secretName": "x"}), "spec.serviceInstanceName: Required"},
		"binding whose rotation is incomplete": {object("v1", "ServiceBinding", map[string]any{"serviceInstanceName": "x", "credentialsRotationPolicy": map[string]any{}}), "enabled: Required"},
		"binding with everything": {object("v1", "ServiceBinding", map[string]any{
			"serviceInstanceName": "x", "serviceInstanceNamespace": "apps", "externalName": "e", "secretName": "s", "secretKey": "k", "secretRootKey": "r",
			"secretTemplate": "apiVersion: v1", "parameters": free, "parametersFrom": from, "userInfo": user,
			"credentialsRotationPolicy": map[string]any{"enabled": true, "rotationFrequency": "24h", "rotatedBindingTTL": "1h"},
		}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.Create(t.Context(), test.o, client.DryRunAll)
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the answer is %v, must have %q", err, test.want)
			}
		})
	}

	t.Run("status", func(t *testing.T) {
		conditions := []any{map[string]any{
			"type": "Succeeded", "status": "True", "reason": "Created", "message": "", "lastTransitionTime": "2026-11-21T20:00:00Z", "observedGeneration": int64(1),
		}}
		for _, test := range []struct {
			o      *unstructured.Unstructured
			status map[string]any
		}{
			{instance(nil), map[string]any{
				"instanceID": "i", "tags": []any{"t"}, "operationURL": "/u", "operationType": "create", "conditions": conditions, "ready": "True",
				"hashedSpec": "h", "subaccountID": "s", "forceReconcile": true, "observedGeneration": int64(1),
			}},
			{object("v1", "ServiceBinding", map[string]any{"serviceInstanceName": "x"}), map[string]any{
				"instanceID": "i", "bindingID": "b", "operationURL": "/u", "operationType": "create", "conditions": conditions, "ready": "True",
				"lastCredentialsRotationTime": "2026-11-21T20:00:00Z", "subaccountID": "s", "observedGeneration": int64(1), "asyncBindFailed": true,
			}},
		} {
			require.NoError(t, c.Create(t.Context(), test.o))
			test.o.Object["status"] = test.status
			if err := c.Status().Update(t.Context(), test.o); err != nil {
				t.Errorf("%s: %v", test.o.GetKind(), err)
			}
			older := object("v1alpha1", test.o.GetKind(), nil)
			require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(test.o), older))
			if id, _, _ := unstructured.NestedString(older.Object, "status", "instanceID"); id != "i" {
				t.Errorf("the older version of the %s has the status %v", test.o.GetKind(), older.Object["status"])
			}
			require.NoError(t, c.Delete(t.Context(), test.o))
		}
	})

	t.Run("columns", func(t *testing.T) {
		want := map[string]string{
			"serviceinstances.services.cloud.sap.com": "Offering Plan shared dataCenter Status Ready Age ID Message",
			"servicebindings.services.cloud.sap.com":  "Instance Status Ready Age ID Message",
		}
		for _, o := range crds {
			for _, version := range strict(t, o).(*apiextensionsv1.CustomResourceDefinition).Spec.Versions {
				var columns []string
				for _, column := range version.AdditionalPrinterColumns {
					columns = append(columns, column.Name)
				}
				if got := strings.Join(columns, " "); got != want[o.GetName()] || !version.Served || version.Storage != (version.Name == "v1") {
					t.Errorf("%s %s has the columns %s, is served: %v, is stored: %v", o.GetName(), version.Name, got, version.Served, version.Storage)
				}
			}
		}
	})
}

// This package contains the scopes of kinds, because rendering queries no cluster.
func TestBuiltIn_Scopes_MatchServer(t *testing.T) {
	d, err := discovery.NewDiscoveryClientForConfig(shared.Cluster(t).Config)
	require.NoError(t, err)
	_, lists, err := d.ServerGroupsAndResources()
	require.NoError(t, err)
	checked := map[schema.GroupKind]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(t, err)
		for _, r := range list.APIResources {
			kind := schema.GroupKind{Group: gv.Group, Kind: r.Kind}
			isNamespaced, known := render.BuiltIn(kind)
			if !known || strings.Contains(r.Name, "/") {
				continue
			}
			checked[kind] = true
			if isNamespaced != r.Namespaced {
				t.Errorf("%s is namespaced: %v, the server returns %v", kind, isNamespaced, r.Namespaced)
			}
		}
	}
	if len(checked) < 35 {
		t.Errorf("only %d kinds of the list are known to the server: %v", len(checked), checked)
	}
}
