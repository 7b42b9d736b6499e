package render

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// BuiltIn tells whether a kind is known and namespaced.
func BuiltIn(kind schema.GroupKind) (isNamespaced, known bool) {
	s, known := builtIn(kind)
	return s == namespaced, known
}

// Decode reads a rendered file.
func Decode(text string) ([]*unstructured.Unstructured, error) { return decode("file", text) }
