package fault

import (
	"encoding/json"
	"net/http"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// ServeFailures answers GET with the rows of a table, empties the table on DELETE, and calls put on PUT.
func ServeFailures[T any](w http.ResponseWriter, r *http.Request, store *journal.Store, table *journal.Table[T], put http.HandlerFunc) {
	switch r.Method {
	case http.MethodGet:
		list := []T{}
		store.View(func() {
			for _, id := range table.Sorted() {
				row, _ := table.Get(id)
				list = append(list, row)
			}
		})
		contract.JSON(w, http.StatusOK, map[string]any{"data": list, "count": len(list), "totalCount": len(list)})
	case http.MethodPut:
		put(w, r)
	default:
		empty(w, store, table)
	}
}

func empty[T any](w http.ResponseWriter, store *journal.Store, table *journal.Table[T]) {
	err := store.Update(func(tx *journal.Tx) error {
		for id := range table.All() {
			if err := table.Delete(tx, id); err != nil {
				return err
			}
		}
		return nil
	})
	contract.Reply(w, err, http.StatusNoContent, nil)
}

// DecodeFailure decodes a failure into f, which contains the defaults. An error lists the allowed members.
func DecodeFailure(w http.ResponseWriter, r *http.Request, f any, allowed string) bool {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, contract.MaxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(f); err != nil {
		contract.Error(w, http.StatusBadRequest, "%v; allowed are %s", err, allowed)
		return false
	}
	return true
}
