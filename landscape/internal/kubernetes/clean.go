package kubernetes

import (
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// clean stages o without its mark. If another object refers to it, clean schedules another check.
func (s *System) clean(tx *journal.Tx, c *collection, o object) error {
	referred, err := s.referred(c.Cleanup, o)
	if err != nil {
		return err
	}
	if referred {
		o.CleanAt = s.now().UTC().Add(c.Cleanup.After)
		return c.table.Put(tx, o.id(), o)
	}
	body, err := decodeObject(o.Body)
	if err != nil {
		return err
	}
	if labels, ok := metadata(body)["labels"].(map[string]any); ok {
		delete(labels, c.Cleanup.Mark)
		for _, label := range c.Cleanup.Also {
			delete(labels, label)
		}
	}
	return s.store(tx, c, o, body)
}

func (s *System) referred(job *Cleanup, o object) (bool, error) {
	referrers, ok := s.collections[job.Referrer]
	if !ok {
		return false, nil
	}
	for _, r := range referrers.byCluster[o.Cluster] {
		if r.Namespace != o.Namespace {
			continue
		}
		body, err := decodeObject(r.Body)
		if err != nil {
			return false, err
		}
		if spec, ok := body["spec"].(map[string]any); ok && spec[job.Field] == o.Name {
			return true, nil
		}
	}
	return false, nil
}
