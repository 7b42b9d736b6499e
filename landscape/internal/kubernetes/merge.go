package kubernetes

import (
	"fmt"

	"github.com/kyma-project/keb/landscape/internal/journal"
)

// Merge applies an RFC 7386 merge patch to an object. An unknown object is not an error. It is idempotent.
func (s *System) Merge(clusterID, resource, namespace, name string, patch map[string]any) error {
	c, ok := s.collections[resource]
	if !ok {
		return fmt.Errorf("merge object: resource %s is not served", resource)
	}
	t := target{collection: c, cluster: clusterID, namespace: namespace, name: name}
	return s.Update(func(tx *journal.Tx) error {
		if _, ok := c.table.Get(t.id()); !ok {
			return nil
		}
		_, err := s.replace(tx, t, func(old map[string]any) (map[string]any, error) {
			merged, _ := merge(old, patch).(map[string]any)
			return merged, nil
		})
		return err
	})
}
