package journal

import (
	"maps"
	"slices"
)

// Index finds the ids of rows by a shared key. Maintain it with Table.Index or Table.OnChange; the store's lock protects it. The zero value is an empty
// index.
type Index struct {
	ids  map[string]map[string]struct{}
	keys map[string][]string
}

// Set sets the keys of a row; without keys it removes the row.
func (x *Index) Set(id string, keys ...string) {
	if x.ids == nil {
		x.ids, x.keys = map[string]map[string]struct{}{}, map[string][]string{}
	}
	for _, key := range x.keys[id] {
		delete(x.ids[key], id)
		if len(x.ids[key]) == 0 {
			delete(x.ids, key)
		}
	}
	delete(x.keys, id)
	for _, key := range keys {
		if x.ids[key] == nil {
			x.ids[key] = map[string]struct{}{}
		}
		x.ids[key][id] = struct{}{}
	}
	if len(keys) > 0 {
		x.keys[id] = slices.Clone(keys)
	}
}

// IDs returns the ids with that key, in order.
func (x *Index) IDs(key string) []string { return slices.Sorted(maps.Keys(x.ids[key])) }
