package render

import (
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/runtime"
)

// merge overrides defaults with values, map by map, and copies both. A nil removes a default, as in Helm.
func merge(defaults map[string]any, values ...map[string]any) (map[string]any, error) {
	merged := runtime.DeepCopyJSON(defaults)
	for _, v := range values {
		if err := checkText("", v); err != nil {
			return nil, fmt.Errorf("values: %w", err)
		}
		overlay(merged, runtime.DeepCopyJSON(v))
	}
	return merged, nil
}

func overlay(dst, src map[string]any) {
	for key, value := range src {
		if value == nil {
			delete(dst, key)
			continue
		}
		from, isMap := value.(map[string]any)
		to, wasMap := dst[key].(map[string]any)
		if isMap && wasMap {
			overlay(to, from)
			continue
		}
		dst[key] = value
	}
}

// checkText rejects text that YAML cannot contain.
func checkText(field string, value any) error {
	switch v := value.(type) {
	case string:
		if !utf8.ValidString(v) {
			return fmt.Errorf("%s: no valid UTF-8", field)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if err := checkText(join(field, key), v[key]); err != nil {
				return err
			}
		}
	}
	return nil
}

func join(field, key string) string {
	if field == "" {
		return key
	}
	return field + "." + key
}
