// Package instance holds what the broker knows about a service instance and its
// operations, and the rules that need nothing else: what makes two orders the
// same, what the context of an order must hold, and what the platform is told.
package instance

import (
	"encoding/json"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// Instance is what a platform ordered. It holds no secret; credentials are kept apart, sealed.
type Instance struct {
	ID        string
	ServiceID string
	Plan      event.Plan
	Context   event.Context
	Runtime   event.Runtime
	// Sent is the parameters as they were sent, Effective those with all defaults.
	Sent, Effective json.RawMessage
	DashboardURL    string
	// RequestHash is the Identity of the order.
	RequestHash string
	// OperationID is the newest operation that is no upgrade; it decides what the platform sees of the instance.
	OperationID string
	// MaintenanceVersion is the version of maintenance_info that the instance has; empty when it has none.
	MaintenanceVersion string
	CreatedAt          time.Time
	// DeletedAt is when the instance was deleted with work left to do; zero as long as it is there.
	DeletedAt time.Time
	// ExpiredAt is when a trial or a free instance was declared to be over, which nothing undoes; zero before.
	ExpiredAt time.Time
}

// Operation is where an operation on an instance stands, as far as the broker has heard.
type Operation struct {
	ID         string
	InstanceID string
	Type       event.OperationType
	Progress
	// SupersededBy is the deprovisioning that ended this operation early; empty for most.
	SupersededBy string
	// Suspension tells of a deprovisioning that it leaves the instance in place, and of a provisioning that it brings the
	// runtime of a suspended instance back.
	Suspension bool
	CreatedAt  time.Time
	Published  bool
}

// Progress is the part of an operation that facts change.
type Progress struct {
	State event.OperationState
	// Cursor is that of the last transition heard of; 0 before the first.
	Cursor int64
	// Position is empty before the start and after the end.
	Position     event.Position
	Message      string
	Error        *event.Error
	NotCompleted []string
}

// Event is the operation as it goes to the orchestrator.
func (i *Instance) Event(operationID string, t event.OperationType, credentials []string) event.Operation {
	return event.Operation{
		ID: operationID, Type: t, InstanceID: i.ID, Plan: i.Plan, Context: i.Context, Runtime: i.Runtime,
		Parameters: i.Effective, Credentials: credentials,
	}
}
