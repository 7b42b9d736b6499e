package render

import (
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"
)

// merge overrides defaults with values, map by map, and copies both. A nil removes a default, as in Helm.
func merge(defaults, values map[string]any) (map[string]any, error) {
	merged, err := plainMap("", defaults)
	if err != nil {
		return nil, fmt.Errorf("values.yaml: %w", err)
	}
	over, err := plainMap("", values)
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	overlay(merged, over)
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

// plain copies a value and converts it to the types of a JSON document, which are the only ones that a schema supports.
func plain(field string, value any) (any, error) {
	switch v := value.(type) {
	case nil, bool, float64:
		return v, nil
	case string:
		if !utf8.ValidString(v) {
			return nil, fmt.Errorf("%s: no valid UTF-8", field)
		}
		return v, nil
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case int64:
		return v, nil
	case map[string]any:
		return plainMap(field, v)
	case map[string]string:
		m := make(map[string]any, len(v))
		for key, s := range v {
			m[key] = s
		}
		return plainMap(field, m)
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			p, err := plain(fmt.Sprintf("%s[%d]", field, i), item)
			if err != nil {
				return nil, err
			}
			list[i] = p
		}
		return list, nil
	case []string:
		list := make([]any, len(v))
		for i, s := range v {
			list[i] = s
		}
		return plain(field, list)
	}
	return nil, fmt.Errorf("%s: a value cannot be a %T", field, value)
}

func plainMap(field string, m map[string]any) (map[string]any, error) {
	out := make(map[string]any, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if !utf8.ValidString(key) {
			return nil, fmt.Errorf("the name %q is no valid UTF-8", join(field, key))
		}
		p, err := plain(join(field, key), m[key])
		if err != nil {
			return nil, err
		}
		out[key] = p
	}
	return out, nil
}

func join(field, key string) string {
	if field == "" {
		return key
	}
	return field + "." + key
}
