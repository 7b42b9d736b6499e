package reconciler

import (
	"net/http"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/fault"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// Failure makes later reconciliations end in Status.
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
	fault.ServeFailures(w, r, s.Store, s.failures, s.setFailure)
}

func (s *System) setFailure(w http.ResponseWriter, r *http.Request) {
	f := Failure{Status: Failed, Component: "istio", Reason: "failed on demand"}
	if !fault.DecodeFailure(w, r, &f, "instanceId, status, component, reason") {
		return
	}
	if f.InstanceID == "" {
		contract.Error(w, http.StatusBadRequest, "instanceId is empty, use an instance id, a runtime id, or * for all")
		return
	}
	if f.Status != Failed && f.Status != ErrorRetryable {
		contract.Error(w, http.StatusBadRequest, "status %q is not allowed, use %s or %s", f.Status, Failed, ErrorRetryable)
		return
	}
	err := s.Update(func(tx *journal.Tx) error { return s.failures.Put(tx, f.InstanceID, f) })
	contract.Reply(w, err, http.StatusOK, f)
}
