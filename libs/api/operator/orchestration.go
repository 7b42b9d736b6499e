package operator

import (
	"fmt"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// OrchestrationState is the state of an orchestration.
type OrchestrationState string

// MemberState is the state of an operation of an orchestration.
type MemberState string

// States of orchestrations and their operations besides StateSucceeded, StateFailed and StateSkipped.
const (
	StatePending    = "pending"
	StateInProgress = "in progress"
	StateRetrying   = "retrying"
	StateCanceling  = "canceling"
	StateCanceled   = "canceled"
)

// Spelled returns the allowed state that matches, in either spelling of "cancelled". Operations use "cancelled"; orchestrations use
// "canceled", as in the original broker (docs/contracts/processes.md).
func Spelled[T ~string](state string, allowed []T) (T, bool) {
	for _, a := range allowed {
		if strings.Replace(string(a), "cancell", "cancel", 1) == strings.Replace(state, "cancell", "cancel", 1) {
			return a, true
		}
	}
	return "", false
}

// OrchestrationStates returns the states of an orchestration, in the usual order.
func OrchestrationStates() []OrchestrationState {
	return []OrchestrationState{StatePending, StateInProgress, StateRetrying, StateCanceling, StateSucceeded, StateFailed, StateCanceled}
}

// MemberStates returns the states of an operation of an orchestration, in the usual order.
func MemberStates() []MemberState {
	return []MemberState{StatePending, StateInProgress, StateRetrying, StateSucceeded, StateFailed, StateCanceled, StateSkipped}
}

// Final reports whether an orchestration in this state has ended. A failed one may be retried.
func (s OrchestrationState) Final() bool { return MemberState(s).Final() }

// Final reports whether an operation in this state has ended.
func (s MemberState) Final() bool {
	return s == StateSucceeded || s == StateFailed || s == StateCanceled || s == StateSkipped
}

// Stats counts the operations of an orchestration by state.
type Stats map[MemberState]int

// String lists the states that have operations, with their numbers.
func (s Stats) String() string {
	var parts []string
	for _, state := range MemberStates() {
		if n := s[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(parts, ", ")
}

// Progress returns the number of operations that have ended, and the number of all operations.
func (s Stats) Progress() (done, total int) {
	for state, n := range s {
		total += n
		if state.Final() {
			done += n
		}
	}
	return done, total
}

// OrchestrationID is the answer to a request for an upgrade or a cancellation.
type OrchestrationID struct {
	OrchestrationID string `json:"orchestrationID" jsonschema:"format=uuid"`
}

// Orchestration is an upgrade of many runtimes (docs/contracts/processes.md#orchestrations).
type Orchestration struct {
	OrchestrationID string              `json:"orchestrationID" jsonschema:"format=uuid"`
	Type            event.OperationType `json:"type"`
	State           OrchestrationState  `json:"state"`
	Description     string              `json:"description"`
	CreatedAt       time.Time           `json:"createdAt"`
	UpdatedAt       time.Time           `json:"updatedAt"`
	Parameters      Upgrade             `json:"parameters"`
	// OperationStats counts operations by state. It is absent in lists.
	OperationStats Stats `json:"operationStats,omitempty"`
}

// Upgrade requests an orchestration.
type Upgrade struct {
	Targets  Targets  `json:"targets"`
	Strategy Strategy `json:"strategy"`
	// DryRun runs the orchestration without changing the runtimes.
	DryRun bool `json:"dryRun,omitempty"`
	// Notification enables the notification of customers.
	Notification bool `json:"notification,omitempty"`
	// Kyma is allowed only for /upgrade/kyma. If it is absent, the configured version applies.
	Kyma *KymaVersion `json:"kyma,omitempty"`
	// Kubernetes is allowed only for /upgrade/cluster. If it is absent, the configured version applies.
	Kubernetes *ClusterVersion `json:"kubernetes,omitempty"`
}

// Targets selects the instances that match an included target and no excluded target.
type Targets struct {
	Include []Target `json:"include" jsonschema:"minItems=1,maxItems=1000"`
	Exclude []Target `json:"exclude,omitempty" jsonschema:"maxItems=1000"`
}

// Target selects the instances that match all of its conditions. Regular expressions (https://pkg.go.dev/regexp/syntax) match anywhere in
// the value unless they are anchored.
type Target struct {
	// Target selects every instance.
	Target string `json:"target,omitempty" jsonschema:"enum=all"`
	// GlobalAccount is a regular expression.
	GlobalAccount string `json:"globalAccount,omitempty"`
	// SubAccount is a regular expression.
	SubAccount string `json:"subAccount,omitempty"`
	// Region is a regular expression for the hyperscaler region, for example "eu-central-1".
	Region     string `json:"region,omitempty"`
	RuntimeID  string `json:"runtimeID,omitempty"`
	PlanName   string `json:"planName,omitempty"`
	Shoot      string `json:"shoot,omitempty"`
	InstanceID string `json:"instanceID,omitempty"`
}

// Strategy is the order and timing of the operations.
type Strategy struct {
	Type string `json:"type" jsonschema:"enum=parallel"`
	// Schedule is "immediate", "now" or an RFC 3339 time.
	Schedule string `json:"schedule"`
	// MaintenanceWindow delays each operation until the maintenance window of its runtime.
	MaintenanceWindow bool     `json:"maintenanceWindow,omitempty"`
	Parallel          Parallel `json:"parallel"`
}

// Parallel contains the settings of the strategy parallel.
type Parallel struct {
	// Workers is the maximum number of operations in progress. 0 means 1.
	Workers int `json:"workers" jsonschema:"minimum=0,maximum=1000"`
}

// KymaVersion is the target version of a Kyma upgrade.
type KymaVersion struct {
	Version string `json:"version,omitempty"`
}

// ClusterVersion is the target version of a cluster upgrade.
type ClusterVersion struct {
	KubernetesVersion   string `json:"kubernetesVersion,omitempty"`
	MachineImage        string `json:"machineImage,omitempty"`
	MachineImageVersion string `json:"machineImageVersion,omitempty"`
}

// Member is an operation of an orchestration (docs/contracts/processes.md#orchestrations).
type Member struct {
	OperationID            string      `json:"operationID" jsonschema:"format=uuid"`
	InstanceID             string      `json:"instanceID"`
	RuntimeID              string      `json:"runtimeID"`
	GlobalAccountID        string      `json:"globalAccountID"`
	SubAccountID           string      `json:"subAccountID"`
	OrchestrationID        string      `json:"orchestrationID" jsonschema:"format=uuid"`
	ServicePlanID          string      `json:"servicePlanID"`
	ServicePlanName        string      `json:"servicePlanName"`
	DryRun                 bool        `json:"dryRun"`
	ShootName              string      `json:"shootName"`
	MaintenanceWindowBegin *time.Time  `json:"maintenanceWindowBegin,omitempty"`
	MaintenanceWindowEnd   *time.Time  `json:"maintenanceWindowEnd,omitempty"`
	State                  MemberState `json:"state"`
	Description            string      `json:"description"`
	// RetriedAs is the operation that repeats this failed one.
	RetriedAs string `json:"retriedAs,omitempty" jsonschema:"format=uuid"`
	// KymaConfig is the target of the upgrade. It is absent in lists.
	KymaConfig *KymaVersion `json:"kymaConfig,omitempty"`
	// ClusterConfig is the target of the upgrade. It is absent in lists.
	ClusterConfig *ClusterVersion `json:"clusterConfig,omitempty"`
}

// RetryAnswer is the answer to a request to retry operations (docs/contracts/processes.md#orchestrations).
type RetryAnswer struct {
	OrchestrationID   string   `json:"orchestrationID" jsonschema:"format=uuid"`
	RetryShoots       []string `json:"retryShoots"`
	OldOperations     []string `json:"oldOperations"`
	InvalidOperations []string `json:"invalidOperations"`
	Msg               string   `json:"msg"`
}
