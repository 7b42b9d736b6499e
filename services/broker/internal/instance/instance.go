// Package instance defines service instances and their operations, with the rules that
// depend on nothing else: the equality of orders, the validation of contexts, and the
// descriptions for platforms.
package instance

import (
	"encoding/json"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// Instance is a service instance. It contains no secret: credentials are sealed and stored separately.
type Instance struct {
	ID        string
	ServiceID string
	Plan      event.Plan
	Context   event.Context
	Runtime   event.Runtime
	// Sent are the parameters as sent; Effective also contains all defaults.
	Sent, Effective json.RawMessage
	DashboardURL    string
	// RequestHash is the hash of the order's Identity.
	RequestHash string
	// OperationID is the newest operation other than an upgrade. It determines the state that the platform sees.
	OperationID string
	// MaintenanceVersion is the version of the instance's maintenance_info; empty means none.
	MaintenanceVersion string
	CreatedAt          time.Time
	// DeletedAt is when the instance was deleted with steps not completed; zero if it exists.
	DeletedAt time.Time
	// ExpiredAt is when a trial or a free instance expired, which is final; zero if it has not expired.
	ExpiredAt time.Time
}

// Kind is a kind of operations that take equally long.
type Kind struct {
	Type       event.OperationType
	Plan       string
	Suspension bool
}

// Operation is the broker's view of an operation.
type Operation struct {
	ID         string
	InstanceID string
	Type       event.OperationType
	Progress
	// SupersededBy is the deprovisioning that cancelled this operation; empty for most.
	SupersededBy string
	// Suspension marks a deprovisioning that keeps the instance, and a provisioning that recreates the runtime of a suspended
	// instance.
	Suspension bool
	CreatedAt  time.Time
	Published  bool
	// Stages are the names of its stages, in order; empty before its start.
	Stages []string
}

// Progress is the part of an operation that facts update.
type Progress struct {
	State event.OperationState
	// Cursor is the cursor of the last known transition; 0 before the first.
	Cursor int64
	// Position is empty before the start and after the end.
	Position     event.Position
	Message      string
	Error        *event.Error
	NotCompleted []string
}

// Event returns the operation for its request event.
func (i *Instance) Event(operationID string, t event.OperationType, credentials []string) event.Operation {
	return event.Operation{
		ID: operationID, Type: t, InstanceID: i.ID, Plan: i.Plan, Context: i.Context, Runtime: i.Runtime,
		Parameters: i.Effective, Credentials: credentials,
	}
}
