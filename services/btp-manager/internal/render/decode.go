package render

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// hook is the annotation of an object that Helm would create at a specific time.
const hook = "helm.sh/hook"

// decode parses the YAML documents of a rendered file. Errors contain the file and the number of the document, but no part of it, because it
// may be a Secret.
func decode(name, text string) ([]*unstructured.Unstructured, error) {
	var objs []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for i := 1; ; i++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", name, i, err)
		}
		o, err := decodeOne(document)
		if err != nil {
			return nil, fmt.Errorf("%s: document %d: %w", name, i, err)
		}
		if o != nil {
			objs = append(objs, o)
		}
	}
}

// decodeOne returns nil for an empty document, and for a hook.
func decodeOne(document []byte) (*unstructured.Unstructured, error) {
	data, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, fmt.Errorf("invalid YAML: %w", err)
	}
	if string(data) == "null" {
		return nil, nil
	}
	if err := headed(data); err != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(data); err != nil {
		return nil, errors.New("not a Kubernetes object") // the error contains the document
	}
	if o.IsList() {
		return nil, fmt.Errorf("it is a %s; write its objects one by one", o.GetKind())
	}
	if o.GetName() == "" {
		return nil, fmt.Errorf("the %s has no name", o.GetKind())
	}
	if _, ok := o.GetAnnotations()[hook]; ok {
		return nil, nil
	}
	return o, nil
}

// headed checks the required members of an object.
func headed(data []byte) error {
	var head struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return errors.New("not a Kubernetes object")
	}
	if head.APIVersion == "" || head.Kind == "" || head.Metadata == nil {
		return errors.New("an object needs apiVersion, kind and metadata")
	}
	return nil
}
