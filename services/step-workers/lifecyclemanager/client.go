package lifecyclemanager

import (
	"context"
	"encoding/json"
	"maps"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

const labelInstance = "kyma-project.io/instance-id"

// resourceName returns the name of a runtime's Kyma resource.
func resourceName(runtimeID string) string { return strings.ToLower(runtimeID) }

// secretName returns the name of the Secret with the kubeconfig of a runtime.
func secretName(runtimeID string) string { return "kubeconfig-" + resourceName(runtimeID) }

// marks returns the labels and the annotation of the Kyma resource of op's runtime, and of the Secret with its kubeconfig
// (docs/contracts/lifecycle-manager.md#kyma-resource).
func marks(op worker.Operation, runtimeID string) (labels, annotations map[string]any) {
	labels = map[string]any{}
	for key, value := range map[string]string{
		labelInstance:                         op.InstanceID,
		"kyma-project.io/runtime-id":          runtimeID,
		"kyma-project.io/broker-plan-id":      op.Plan.ID,
		"kyma-project.io/broker-plan-name":    op.Plan.Name,
		"kyma-project.io/global-account-id":   op.Context.GlobalAccountID,
		"kyma-project.io/subaccount-id":       op.Context.SubaccountID,
		"kyma-project.io/shoot-name":          op.Runtime.ShootName,
		"kyma-project.io/region":              op.Runtime.Region,
		"operator.kyma-project.io/kyma-name":  resourceName(runtimeID),
		"operator.kyma-project.io/managed-by": "lifecycle-manager",
	} {
		// The broker rejects orders with ids that are not valid labels, but older instances may have such ids. The label is then omitted,
		// because a modified id could be that of another instance.
		if labelValue.MatchString(value) {
			labels[key] = value
		}
	}
	return labels, map[string]any{"skr-domain": op.Runtime.ShootDomain}
}

// labelValue is the Kubernetes syntax of a label value.
var labelValue = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$`)

// mark adds the labels, the annotation and the other members to an existing object. It changes nothing else.
func (s *shared) mark(
	ctx context.Context, kind schema.GroupVersionResource, have *unstructured.Unstructured, labels, annotations, more map[string]any,
) error {
	patch := map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}}
	maps.Copy(patch, more)
	body, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	return s.kube.Patch(ctx, kind, have.GetNamespace(), have.GetName(), body)
}

// isMarked reports whether an object has the labels and the annotation.
func isMarked(have *unstructured.Unstructured, labels, annotations map[string]any) bool {
	return contains(have.GetLabels(), labels) && contains(have.GetAnnotations(), annotations)
}

func contains(have map[string]string, want map[string]any) bool {
	for key, value := range want {
		if got, ok := have[key]; !ok || got != value {
			return false
		}
	}
	return true
}

// find returns the names of an instance's objects in a namespace. It searches by label, which also finds objects whose names were not
// saved. If it finds none, it checks for an object with the given name, which may lack the label.
func (s *shared) find(ctx context.Context, kind schema.GroupVersionResource, namespace, instanceID, name string) ([]string, error) {
	var names []string
	if instanceID != "" && labelValue.MatchString(instanceID) {
		list, err := s.kube.List(ctx, kind, namespace, labelInstance+"="+instanceID)
		if err != nil {
			return nil, err
		}
		for _, o := range list {
			names = append(names, o.GetName())
		}
	}
	if name == "" || len(names) > 0 {
		return names, nil
	}
	_, err := s.kube.Get(ctx, kind, namespace, name)
	if kube.IsNotFound(err) {
		return nil, nil
	}
	return []string{name}, err
}
