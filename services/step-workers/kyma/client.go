package kyma

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// labelComponent restricts an object to one component. Without it, the overrides apply to all components.
const labelComponent = "component"

// labelDefaultForLite marks overrides of Kyma 1 that do not apply to the licence type TestDevelopmentAndDemo.
const labelDefaultForLite = "default-for-lite"

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

// selection selects the overrides of an operation.
type selection struct {
	// secrets and configMaps are label selectors.
	secrets, configMaps string
	// withoutDefaultForLite leaves out objects with the label default-for-lite, of Kyma 1.
	withoutDefaultForLite bool
}

// collect adds the overrides of Secrets, then those of ConfigMaps, to into, by component. It returns the number of entries of ConfigMaps for all
// components.
func (s *store) collect(ctx context.Context, by selection, into map[string][]worker.Override) (global int, err error) {
	for _, kind := range []struct {
		resource schema.GroupVersionResource
		selector string
	}{{kube.Secrets, by.secrets}, {kube.ConfigMaps, by.configMaps}} {
		list, err := s.kube.List(ctx, kind.resource, s.namespace, kind.selector)
		if err != nil {
			return 0, err
		}
		for _, object := range list {
			if _, isForLite := object.GetLabels()[labelDefaultForLite]; isForLite && by.withoutDefaultForLite {
				continue
			}
			data, err := text(object)
			if err != nil {
				return 0, err
			}
			isSecret := kind.resource == kube.Secrets
			if !isSecret && object.GetLabels()[labelComponent] == "" {
				global += len(data)
			}
			for _, key := range slices.Sorted(maps.Keys(data)) {
				value := []byte(data[key])
				if isSecret {
					if value, err = base64.StdEncoding.DecodeString(data[key]); err != nil {
						return 0, fmt.Errorf("secret %s: the value of %s is not base64", object.GetName(), key)
					}
				}
				add(into, object, worker.Override{Key: key, Value: string(value), Secret: isSecret})
			}
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
