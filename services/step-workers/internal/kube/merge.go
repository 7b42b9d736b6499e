package kube

import (
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// merge copies the fields of want into have and reports whether have changed. It keeps the labels and annotations of other clients.
func merge(have, want *unstructured.Unstructured) bool {
	changed := false
	labels, changedLabels := mergeText(have.GetLabels(), want.GetLabels())
	if changedLabels {
		have.SetLabels(labels)
		changed = true
	}
	annotations, changedAnnotations := mergeText(have.GetAnnotations(), want.GetAnnotations())
	if changedAnnotations {
		have.SetAnnotations(annotations)
		changed = true
	}
	for field, value := range want.Object {
		switch field {
		case "apiVersion", "kind", "metadata":
			continue
		}
		if !reflect.DeepEqual(have.Object[field], value) {
			have.Object[field] = value
			changed = true
		}
	}
	return changed
}

func mergeText(have, want map[string]string) (map[string]string, bool) {
	changed := false
	for key, value := range want {
		if old, ok := have[key]; ok && old == value {
			continue
		}
		if have == nil {
			have = map[string]string{}
		}
		have[key] = value
		changed = true
	}
	return have, changed
}
