package kyma

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// The reasons of errors in the operators' configuration objects (docs/contracts/processes.md#components-and-reasons-of-errors).
const (
	reasonNoMatch   = "err_k8s_no_match_error"
	reasonAmbiguous = "err_k8s_ambiguous_error"
	reasonObject    = "err_k8s_unexpected_object_error"
)

// Versions reads the ConfigMaps with the operators' settings for the runtimes of a version of Kyma, by plan
// (docs/contracts/kyma-configuration.md#runtime-versions).
type Versions struct {
	kube           *kube.Client
	namespace      string
	defaultVersion string
}

// NewVersions returns a reader of the ConfigMaps in a namespace. A version of a pull request or of the main branch without its own
// ConfigMap uses that of the default version.
func NewVersions(client *kube.Client, namespace, defaultVersion string) *Versions {
	return &Versions{kube: client, namespace: namespace, defaultVersion: defaultVersion}
}

// RuntimeVersion has the settings for the runtimes of one version and plan.
type RuntimeVersion struct {
	// Components are installed after those of Kyma itself.
	Components []Component
	// KymaTemplate is the text of a Kyma resource; empty if the ConfigMap has none.
	KymaTemplate string
	// Source is the name of the ConfigMap and its key, for errors.
	Source string
}

// Get returns the settings for a version and plan. Its error is a *worker.Error with the name of the ConfigMap, or the error of the call.
func (v *Versions) Get(ctx context.Context, version, plan string) (RuntimeVersion, error) {
	object, err := v.find(ctx, version)
	if err != nil {
		return RuntimeVersion{}, err
	}
	data, err := text(*object)
	if err != nil {
		return RuntimeVersion{}, objectError("%v", err)
	}
	key := plan
	if _, ok := data[key]; !ok {
		key = "default"
	}
	value, ok := data[key]
	if !ok {
		return RuntimeVersion{}, objectError("ConfigMap %s has neither the key %s nor the key default", object.GetName(), plan)
	}
	source := fmt.Sprintf("ConfigMap %s, key %s", object.GetName(), key)
	got, err := parseRuntimeVersion(value)
	if err != nil {
		return RuntimeVersion{}, objectError("%s: %v", source, err)
	}
	got.Source = source
	return got, nil
}

// find returns the only ConfigMap of a version.
func (v *Versions) find(ctx context.Context, version string) (*unstructured.Unstructured, error) {
	for {
		selector := "keb-config=true,runtime-version-" + strings.ToLower(version) + "=true"
		list, err := v.kube.List(ctx, kube.ConfigMaps, v.namespace, selector)
		switch {
		case err != nil:
			return nil, err
		case len(list) == 1:
			return &list[0], nil
		case len(list) > 1:
			return nil, &worker.Error{Component: component, Reason: reasonAmbiguous, Message: fmt.Sprintf(
				"%d ConfigMaps in %s have the labels %s: want exactly one", len(list), v.namespace, selector)}
		case !onDemand(version) || version == v.defaultVersion:
			return nil, &worker.Error{Component: component, Reason: reasonNoMatch, Message: fmt.Sprintf(
				"no ConfigMap in %s has the labels %s: want exactly one", v.namespace, selector)}
		}
		version = v.defaultVersion
	}
}

func parseRuntimeVersion(value string) (RuntimeVersion, error) {
	var content struct {
		AdditionalComponents *[]struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
			Source    struct {
				URL string `json:"url"`
			} `json:"source"`
		} `json:"additional-components"`
		KymaTemplate string `json:"kyma-template"`
	}
	if err := yaml.Unmarshal([]byte(value), &content); err != nil {
		return RuntimeVersion{}, errors.New("not the expected YAML")
	}
	if content.AdditionalComponents == nil {
		return RuntimeVersion{}, errors.New("additional-components is missing: want a list, which may be empty")
	}
	got := RuntimeVersion{KymaTemplate: content.KymaTemplate}
	for i, c := range *content.AdditionalComponents {
		if c.Name == "" {
			return RuntimeVersion{}, fmt.Errorf("additional-components[%d] has no name", i)
		}
		got.Components = append(got.Components, Component{Name: c.Name, Namespace: c.Namespace, URL: c.Source.URL})
	}
	return got, nil
}

func objectError(format string, args ...any) error {
	return &worker.Error{Component: component, Reason: reasonObject, Message: fmt.Sprintf(format, args...)}
}
