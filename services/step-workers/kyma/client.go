package kyma

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// labelComponent restricts an object to one component. Without it, the overrides apply to all components.
const labelComponent = "component"

// store reads the configuration objects of operators in the control plane.
type store struct {
	kube      *kube.Client
	namespace string
}

// mapping returns the content of a ConfigMap; nil if there is none.
func (s *store) mapping(ctx context.Context, name string) (map[string]string, error) {
	object, err := s.kube.Get(ctx, kube.ConfigMaps, s.namespace, name)
	if kube.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return text(*object)
}

// secrets adds the overrides of all plans and versions to into, by component.
func (s *store) secrets(ctx context.Context, into map[string][]worker.Override) error {
	list, err := s.kube.List(ctx, kube.Secrets, s.namespace, "runtime-override=true")
	if err != nil {
		return err
	}
	for _, object := range list {
		data, err := text(object)
		if err != nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			value, err := base64.StdEncoding.DecodeString(data[key])
			if err != nil {
				return fmt.Errorf("secret %s: the value of %s is not base64", object.GetName(), key)
			}
			add(into, object, worker.Override{Key: key, Value: string(value), Secret: true})
		}
	}
	return nil
}

// configMaps adds the overrides of one plan and version to into. It returns the number of entries for all components.
func (s *store) configMaps(ctx context.Context, plan, version string, into map[string][]worker.Override) (global int, err error) {
	list, err := s.kube.List(ctx, kube.ConfigMaps, s.namespace, overridesSelector(plan, version))
	if err != nil {
		return 0, err
	}
	for _, object := range list {
		data, err := text(object)
		if err != nil {
			return 0, err
		}
		if object.GetLabels()[labelComponent] == "" {
			global += len(data)
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			add(into, object, worker.Override{Key: key, Value: data[key]})
		}
	}
	return global, nil
}

// overridesSelector returns the label selector of the ConfigMaps with the overrides of a plan and version.
func overridesSelector(plan, version string) string {
	return fmt.Sprintf("overrides-plan-%s=true,overrides-version-%s=true", plan, strings.ToLower(version))
}

// add adds an override. It replaces an earlier override with the same key.
func add(into map[string][]worker.Override, object unstructured.Unstructured, o worker.Override) {
	component := object.GetLabels()[labelComponent]
	if at := slices.IndexFunc(into[component], func(known worker.Override) bool { return known.Key == o.Key }); at >= 0 {
		into[component][at] = o
		return
	}
	into[component] = append(into[component], o)
}

func text(object unstructured.Unstructured) (map[string]string, error) {
	data, _, err := unstructured.NestedStringMap(object.Object, "data")
	if err != nil {
		// The library's error contains the value.
		return nil, fmt.Errorf("%s %s: data is not a map of texts", object.GetKind(), object.GetName())
	}
	return data, nil
}
