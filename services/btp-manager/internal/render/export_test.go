package render

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// BuiltIn reports whether a kind is known and namespaced.
func BuiltIn(kind schema.GroupKind) (isNamespaced, known bool) { return builtIn(kind) }

// Decode decodes a rendered file.
func Decode(text string) ([]*unstructured.Unstructured, error) { return decode("file", text) }
