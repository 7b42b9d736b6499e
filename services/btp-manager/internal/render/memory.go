package render

import (
	"path"
	"slices"
	"sort"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// memory caches the decoded files of the last rendering. Between passes hardly a text changes, and decoding YAML takes most of the time of a
// rendering. Files with a Secret are not cached, to keep secrets only as long as necessary.
type memory struct {
	mu    sync.Mutex
	files map[string]file
}

// file is a rendered text and its decoded objects, which must not be changed.
type file struct {
	text    string
	objects []*unstructured.Unstructured
}

// decodeAll decodes the results of the templates, in the order of their names.
func (m *memory) decodeAll(rendered map[string]string) ([]*unstructured.Unstructured, error) {
	names := make([]string, 0, len(rendered))
	for name := range rendered {
		if path.Base(name) != notes {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	var objs []*unstructured.Unstructured
	for _, name := range names {
		found, err := m.decode(name, rendered[name])
		if err != nil {
			return nil, err
		}
		objs = append(objs, found...)
	}
	return objs, nil
}

// decode returns copies of the objects.
func (m *memory) decode(name, text string) ([]*unstructured.Unstructured, error) {
	m.mu.Lock()
	last, known := m.files[name]
	m.mu.Unlock()
	if !known || last.text != text {
		found, err := decode(name, text)
		if err != nil || slices.ContainsFunc(found, isSecret) {
			return found, err
		}
		last = file{text, found}
		m.mu.Lock()
		m.files[name] = last
		m.mu.Unlock()
	}
	objs := make([]*unstructured.Unstructured, len(last.objects))
	for i, o := range last.objects {
		objs[i] = o.DeepCopy()
	}
	return objs, nil
}

func isSecret(o *unstructured.Unstructured) bool { return o.GetKind() == "Secret" }
