package lifecyclemanager

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

const labelInstance = "kyma-project.io/instance-id"

// kymas are the Kyma resources of the control plane.
type kymas struct {
	kube *kube.Client
	cfg  Config
}

// resourceName is the name of a runtime's Kyma resource.
func resourceName(runtimeID string) string { return strings.ToLower(runtimeID) }

// apply creates or updates the Kyma resource of op's runtime.
func (k *kymas) apply(ctx context.Context, op worker.Operation, runtimeID string) error {
	return k.kube.Apply(ctx, kube.Kymas, k.resource(op, runtimeID))
}

func (k *kymas) resource(op worker.Operation, runtimeID string) *unstructured.Unstructured {
	name := resourceName(runtimeID)
	modules := make([]any, 0, len(k.cfg.Modules))
	for _, m := range k.cfg.Modules {
		modules = append(modules, map[string]any{"name": m})
	}
	labels := map[string]any{}
	for key, value := range map[string]string{
		labelInstance:                         op.InstanceID,
		"kyma-project.io/runtime-id":          runtimeID,
		"kyma-project.io/broker-plan-id":      op.Plan.ID,
		"kyma-project.io/broker-plan-name":    op.Plan.Name,
		"kyma-project.io/global-account-id":   op.Context.GlobalAccountID,
		"kyma-project.io/subaccount-id":       op.Context.SubaccountID,
		"kyma-project.io/shoot-name":          op.Runtime.ShootName,
		"kyma-project.io/region":              op.Runtime.Region,
		"operator.kyma-project.io/kyma-name":  name,
		"operator.kyma-project.io/managed-by": "lifecycle-manager",
	} {
		labels[key] = label(value)
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "operator.kyma-project.io/v1beta2", "kind": "Kyma",
		"metadata": map[string]any{
			"name": name, "namespace": k.cfg.Namespace, "labels": labels,
			"annotations": map[string]any{"skr-domain": op.Runtime.ShootDomain},
		},
		"spec": map[string]any{"channel": k.cfg.Channel, "modules": modules},
	}}
}

// find lists the Kyma resources of an instance. It goes by the label, so it also finds one of a runtime whose id was
// never saved; name, if known, finds one whose label was lost.
func (k *kymas) find(ctx context.Context, instanceID, name string) ([]string, error) {
	if !labelValue.MatchString(instanceID) {
		return nil, fmt.Errorf("instance id %q cannot be a label", instanceID)
	}
	list, err := k.kube.List(ctx, kube.Kymas, k.cfg.Namespace, labelInstance+"="+instanceID)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(list)+1)
	for _, o := range list {
		names = append(names, o.GetName())
	}
	if name == "" || len(names) > 0 {
		return names, nil
	}
	_, err = k.kube.Get(ctx, kube.Kymas, k.cfg.Namespace, name)
	if kube.IsNotFound(err) {
		return nil, nil
	}
	return []string{name}, err
}

func (k *kymas) delete(ctx context.Context, name string) error {
	return k.kube.Delete(ctx, kube.Kymas, k.cfg.Namespace, name)
}

var (
	labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
	notLabel   = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)
)

// label makes a text fit for the value of a label.
func label(text string) string {
	text = notLabel.ReplaceAllString(text, "-")
	if len(text) > 63 {
		text = text[:63]
	}
	return strings.Trim(text, "-_.")
}
