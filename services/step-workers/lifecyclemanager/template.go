package lifecyclemanager

import (
	"cmp"
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/kyma"
)

const kymaGroup = "operator.kyma-project.io"

// template is the Kyma resource of a new runtime.
type template struct{ object *unstructured.Unstructured }

// parseTemplate parses the text of a Kyma resource. Its errors contain nothing of the text.
func parseTemplate(text string) (template, error) {
	content := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &content); err != nil {
		return template{}, fmt.Errorf("kyma-template is not a YAML object")
	}
	object := &unstructured.Unstructured{Object: content}
	version := object.GroupVersionKind()
	if version.Group != kymaGroup || version.Version == "" || version.Kind != "Kyma" {
		return template{}, fmt.Errorf("kyma-template is not a resource of kind Kyma in the group %s", kymaGroup)
	}
	if _, ok := content["metadata"].(map[string]any); !ok {
		content["metadata"] = map[string]any{}
	}
	return template{object}, nil
}

// namespace returns the namespace in the template; it may be empty.
func (t template) namespace() string { return t.object.GetNamespace() }

// kind returns the resource in the version of the template, because another version may drop members.
func (t template) kind() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: kymaGroup, Version: t.object.GroupVersionKind().Version, Resource: "kymas"}
}

// resource returns the Kyma resource of one runtime. It keeps the labels and annotations of the template.
func (t template) resource(name, namespace string, labels, annotations map[string]any) *unstructured.Unstructured {
	made := t.object.DeepCopy()
	made.SetName(name)
	made.SetNamespace(namespace)
	made.SetLabels(merged(made.GetLabels(), labels))
	made.SetAnnotations(merged(made.GetAnnotations(), annotations))
	return made
}

func merged(have map[string]string, with map[string]any) map[string]string {
	if have == nil {
		have = map[string]string{}
	}
	for key, value := range with {
		have[key], _ = value.(string)
	}
	return have
}

// template returns the Kyma resource for op's plan and version of Kyma: the saved text, otherwise the current ConfigMap.
func (s *shared) template(ctx context.Context, op worker.Operation, saved string) (text string, t template, err error) {
	if saved != "" {
		t, err = parseTemplate(saved)
		return saved, t, err
	}
	var decided kyma.Details
	if err := op.Details(kyma.Name, &decided); err != nil {
		return "", t, err
	}
	got, err := s.versions.Get(ctx, cmp.Or(decided.Version, s.cfg.DefaultVersion), op.Plan.Name)
	if err != nil {
		return "", t, err
	}
	if got.KymaTemplate == "" {
		return "", t, templateError("%s: kyma-template is missing", got.Source)
	}
	if t, err = parseTemplate(got.KymaTemplate); err != nil {
		return "", t, templateError("%s: %v", got.Source, err)
	}
	return got.KymaTemplate, t, nil
}

func templateError(format string, args ...any) error {
	return &worker.Error{Component: component, Reason: "err_k8s_unexpected_object_error", Message: fmt.Sprintf(format, args...)}
}
