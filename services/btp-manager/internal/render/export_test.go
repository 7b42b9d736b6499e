package render

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// BuiltIn reports whether a kind is known and namespaced.
func BuiltIn(kind schema.GroupKind) (isNamespaced, known bool) {
	s, known := builtIn(kind)
	return s == namespaced, known
}

// Decode decodes a rendered file.
func Decode(text string) ([]*unstructured.Unstructured, error) { return decode("file", text) }

// Kept returns the cached texts.
func (c *Chart) Kept() []string {
	c.last.mu.Lock()
	defer c.last.mu.Unlock()
	var texts []string
	for _, f := range c.last.files {
		texts = append(texts, f.text)
	}
	return texts
}
