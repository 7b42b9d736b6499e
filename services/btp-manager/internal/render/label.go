package render

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// The labels of all objects that BTP Manager creates (docs/contracts/btp-manager.md#labels). Pod templates have them too, so that the pods
// get them.
const (
	// ManagedByLabel is the label with the creator of an object. Its value is ManagedBy.
	ManagedByLabel = "app.kubernetes.io/managed-by"
	// ManagedBy is the value of ManagedByLabel.
	ManagedBy = "btp-manager"
	// ChartVersionLabel is the label with the version of the object's chart.
	ChartVersionLabel = "chart-version"
	// ModuleLabel is the label with the module of an object. Its value is Module.
	ModuleLabel = "kyma-project.io/module"
	// Module is the value of ModuleLabel.
	Module = "btp-operator"
)

// chartLabels returns the labels of an object in this version of the chart.
func chartLabels(version string) map[string]string {
	return map[string]string{ManagedByLabel: ManagedBy, ModuleLabel: Module, ChartVersionLabel: version}
}

// podTemplate returns the path of the pod template in a kind.
func podTemplate(kind string) []string {
	switch kind {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job":
		return []string{"spec", "template"}
	case "CronJob":
		return []string{"spec", "jobTemplate", "spec", "template"}
	}
	return nil
}

func label(o *unstructured.Unstructured, version string) error {
	if err := addLabels(o.Object, version, "metadata", "labels"); err != nil {
		return err
	}
	if template := podTemplate(o.GetKind()); template != nil {
		return addLabels(o.Object, version, append(template, "metadata", "labels")...)
	}
	return nil
}

func addLabels(object map[string]any, version string, fields ...string) error {
	labels, _, err := unstructured.NestedStringMap(object, fields...)
	if err != nil {
		return fmt.Errorf("labels: %w", err)
	}
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, chartLabels(version))
	if err := unstructured.SetNestedStringMap(object, labels, fields...); err != nil {
		return fmt.Errorf("labels: %w", err)
	}
	return nil
}
