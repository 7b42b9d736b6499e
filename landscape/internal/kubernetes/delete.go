package kubernetes

import (
	"net/http"
	"slices"
	"time"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

type deleteOptions struct {
	Preconditions struct {
		UID             string `json:"uid"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"preconditions"`
}

func (s *System) delete(w http.ResponseWriter, r *http.Request, t target) {
	var options deleteOptions
	if r.ContentLength != 0 {
		if err := contract.Decode(r, contract.MaxBody, &options); err != nil {
			writeError(w, r, badRequest("%v", err))
			return
		}
	}
	var left map[string]any
	err := s.Update(func(tx *journal.Tx) error {
		o, ok := t.collection.table.Get(t.id())
		if !ok {
			return t.collection.notFound(t.name)
		}
		var err error
		left, err = s.remove(tx, t.collection, o, options)
		return err
	})
	if err == nil && left == nil {
		writeSuccess(w)
		return
	}
	s.answer(w, r, http.StatusOK, left, err)
}

func (s *System) deleteAll(w http.ResponseWriter, r *http.Request, t target) {
	q := r.URL.Query()
	found, _, err := s.selected(t, q.Get("labelSelector"), q.Get("fieldSelector"))
	if err == nil {
		err = s.Update(func(tx *journal.Tx) error {
			for _, seen := range found {
				o, ok := t.collection.table.Get(seen.id())
				if !ok {
					continue
				}
				if _, err := s.remove(tx, t.collection, o, deleteOptions{}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		writeError(w, r, err)
		return
	}
	writeSuccess(w)
}

// remove stages the deletion of o. An object with a finalizer or GoneAfter is only marked, and returned.
func (s *System) remove(tx *journal.Tx, c *collection, o object, options deleteOptions) (map[string]any, error) {
	body, err := decodeObject(o.Body)
	if err != nil {
		return nil, err
	}
	meta := metadata(body)
	if want := options.Preconditions; (want.UID != "" && want.UID != meta["uid"]) ||
		(want.ResourceVersion != "" && want.ResourceVersion != meta["resourceVersion"]) {
		return nil, c.conflict(o.Name)
	}
	if c.ConfirmDelete && stringMap(meta["annotations"])["confirmation.gardener.cloud/deletion"] != "true" {
		return nil, c.about(http.StatusForbidden, "Forbidden", o.Name,
			`cannot be deleted: the annotation confirmation.gardener.cloud/deletion must be "true"`)
	}
	if c.GoneAfter == 0 {
		c.release(meta)
	}
	if len(finalizers(meta)) == 0 && c.GoneAfter == 0 {
		if c.Plural == "namespaces" {
			if err := s.empty(tx, o); err != nil {
				return nil, err
			}
		}
		return nil, c.table.Delete(tx, o.id())
	}
	if deleting(meta) {
		return body, nil
	}
	now := s.now().UTC()
	meta["deletionTimestamp"] = now.Format(time.RFC3339)
	if c.GoneAfter > 0 {
		o.GoneAt = now.Add(c.GoneAfter)
	}
	return body, s.store(tx, c, o, body)
}

// release removes the finalizer of the simulated controller.
func (c *collection) release(meta map[string]any) {
	left := slices.DeleteFunc(slices.Clone(finalizers(meta)), func(f any) bool { return c.Finalizer != "" && f == c.Finalizer })
	if len(left) == 0 {
		delete(meta, "finalizers")
		return
	}
	meta["finalizers"] = left
}

// empty removes the objects of a namespace.
func (s *System) empty(tx *journal.Tx, namespace object) error {
	for _, c := range s.collections {
		for _, o := range c.byCluster[namespace.Cluster] {
			if o.Namespace != namespace.Name {
				continue
			}
			if err := c.table.Delete(tx, o.id()); err != nil {
				return err
			}
		}
	}
	return nil
}

func deleting(meta map[string]any) bool { return meta["deletionTimestamp"] != nil }

func finalizers(meta map[string]any) []any {
	list, _ := meta["finalizers"].([]any)
	return list
}
