package reconciler

import (
	"encoding/json"
	"net/http"

	"github.com/kyma-project/keb/landscape/internal/answer"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// Failure lets reconciliations that start from now on end in Status.
type Failure struct {
	InstanceID string `json:"instanceId"` // metadata.instanceID of the cluster, or a runtime id, or "*" for all
	Status     string `json:"status"`     // error or reconcile_error_retryable
	Component  string `json:"component"`
	Reason     string `json:"reason"`
}

func (s *System) failureFor(ids ...string) (Failure, bool) {
	for _, id := range append(ids, "*") {
		if f, ok := s.failures.Get(id); ok {
			return f, true
		}
	}
	return Failure{}, false
}

// Failures serves the admin API's GET, PUT and DELETE of failures.
func (s *System) Failures(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		list := []Failure{}
		s.View(func() {
			for _, id := range s.failures.Sorted() {
				f, _ := s.failures.Get(id)
				list = append(list, f)
			}
		})
		answer.JSON(w, http.StatusOK, map[string]any{"data": list, "count": len(list), "totalCount": len(list)})
	case http.MethodPut:
		s.setFailure(w, r)
	default:
		err := s.Update(func(tx *journal.Tx) error {
			for id := range s.failures.All() {
				if err := s.failures.Delete(tx, id); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			answer.Error(w, http.StatusInternalServerError, "%v", err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *System) setFailure(w http.ResponseWriter, r *http.Request) {
	f := Failure{Status: Failed, Component: "istio", Reason: "failed on demand"}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, answer.MaxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		answer.Error(w, http.StatusBadRequest, "%v; allowed are instanceId, status, component, reason", err)
		return
	}
	if f.InstanceID == "" {
		answer.Error(w, http.StatusBadRequest, "instanceId is empty, use an instance id, a runtime id, or * for all")
		return
	}
	if f.Status != Failed && f.Status != ErrorRetryable {
		answer.Error(w, http.StatusBadRequest, "status %q is not allowed, use %s or %s", f.Status, Failed, ErrorRetryable)
		return
	}
	if err := s.Update(func(tx *journal.Tx) error { return s.failures.Put(tx, f.InstanceID, f) }); err != nil {
		answer.Error(w, http.StatusInternalServerError, "%v", err)
		return
	}
	answer.JSON(w, http.StatusOK, f)
}
