package provisioner

import (
	"net/http"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/fault"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

const (
	instanceLabel = "broker_instance_id"
	anyInstance   = "*"
)

// Failure makes later operations end as Failed.
type Failure struct {
	InstanceID string `json:"instanceId"`          // value of the label broker_instance_id, or a runtime id, or "*" for all
	Operation  string `json:"operation,omitempty"` // e.g. "ProvisionNoInstall"; "" for all
	Message    string `json:"message"`
	Reason     string `json:"reason"`
	Component  string `json:"component"`
}

var operationTypes = map[string]bool{
	"": true, "Provision": true, "ProvisionNoInstall": true, "Deprovision": true, "DeprovisionNoInstall": true,
	"Upgrade": true, "UpgradeShoot": true, "Hibernate": true, "ReconnectRuntime": true,
}

// Failures serves the admin API's GET, PUT and DELETE of failures.
func (s *System) Failures(w http.ResponseWriter, r *http.Request) {
	fault.ServeFailures(w, r, s.Store, s.failures, s.setFailure)
}

func (s *System) setFailure(w http.ResponseWriter, r *http.Request) {
	f := Failure{Message: "failed on demand", Reason: "ERR_INFRA_QUOTA_EXCEEDED", Component: "gardener"}
	if !fault.DecodeFailure(w, r, &f, "instanceId, operation, message, reason, component") {
		return
	}
	if f.InstanceID == "" {
		contract.Error(w, http.StatusBadRequest, "instanceId is empty, use an instance id, a runtime id, or * for all")
		return
	}
	if !operationTypes[f.Operation] {
		contract.Error(w, http.StatusBadRequest, "operation %q is not allowed, use a Provisioner operation type such as ProvisionNoInstall, or leave it out", f.Operation)
		return
	}
	err := s.Update(func(tx *journal.Tx) error { return s.failures.Put(tx, f.InstanceID, f) })
	contract.Reply(w, err, http.StatusOK, f)
}
