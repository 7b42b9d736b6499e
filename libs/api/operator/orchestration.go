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

// States of orchestrations and their operations besides StateRetrying, StateSucceeded, StateFailed and StateSkipped.
const (
	StatePending    = "pending"
	StateInProgress = "in progress"
	StateCanceling  = "canceling"
	StateCanceled   = "canceled"
)

// Spelled returns the allowed state that a client means. Operations are cancelled, orchestrations are canceled as in the original broker
// (docs/contracts/processes.md): a client may write either.
func Spelled[T ~string](state string, allowed []T) (T, bool) {
	for _, a := range allowed {
		if strings.Replace(string(a), "cancell", "cancel", 1) == strings.Replace(state, "cancell", "cancel", 1) {
			return a, true
		}
	}
	return "", false
}

// OrchestrationStates are those of an orchestration, in the order in which it goes through them.
func OrchestrationStates() []OrchestrationState {
	return []OrchestrationState{StatePending, StateInProgress, StateRetrying, StateCanceling, StateSucceeded, StateFailed, StateCanceled}
}

// MemberStates are those of an operation of an orchestration, in the order in which it goes through them.
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

// String lists the states that have operations; it is empty when none has.
func (s Stats) String() string {
	var parts []string
	for _, state := range MemberStates() {
		if n := s[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(parts, ", ")
}

// Progress is how many of the operations have ended, and how many there are.
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
	// OperationStats counts operations by state; only for one orchestration.
	OperationStats Stats `json:"operationStats,omitempty"`
}

// Upgrade is an order for an orchestration.
type Upgrade struct {
	Targets  Targets  `json:"targets"`
	Strategy Strategy `json:"strategy"`
	// DryRun leaves the runtimes as they are.
	DryRun bool `json:"dryRun,omitempty"`
	// Notification informs customers.
	Notification bool `json:"notification,omitempty"`
	// Kyma is only for /upgrade/kyma; absent means what is configured.
	Kyma *KymaVersion `json:"kyma,omitempty"`
	// Kubernetes is only for /upgrade/cluster; absent means what is configured.
	Kubernetes *ClusterVersion `json:"kubernetes,omitempty"`
}

// Targets selects the instances that an included target selects and no excluded one.
type Targets struct {
	Include []Target `json:"include" jsonschema:"minItems=1,maxItems=1000"`
	Exclude []Target `json:"exclude,omitempty" jsonschema:"maxItems=1000"`
}

// Target selects the instances that meet all of its conditions. Regular expressions (https://pkg.go.dev/regexp/syntax) match anywhere in
// the value unless they are anchored.
type Target struct {
	// Target is met by every instance.
	Target string `json:"target,omitempty" jsonschema:"enum=all"`
	// GlobalAccount is a regular expression.
	GlobalAccount string `json:"globalAccount,omitempty"`
	// SubAccount is a regular expression.
	SubAccount string `json:"subAccount,omitempty"`
	// Region is a regular expression for the region of the hyperscaler, for example "eu-central-1".
	Region     string `json:"region,omitempty"`
	RuntimeID  string `json:"runtimeID,omitempty"`
	PlanName   string `json:"planName,omitempty"`
	Shoot      string `json:"shoot,omitempty"`
	InstanceID string `json:"instanceID,omitempty"`
}

// Strategy is how the operations are carried out.
type Strategy struct {
	Type string `json:"type" jsonschema:"enum=parallel"`
	// Schedule is "immediate", "now" or a time in the form of RFC 3339.
	Schedule string `json:"schedule"`
	// MaintenanceWindow lets each operation start in the maintenance window of its runtime.
	MaintenanceWindow bool     `json:"maintenanceWindow,omitempty"`
	Parallel          Parallel `json:"parallel"`
}

// Parallel is the strategy of that name.
type Parallel struct {
	// Workers is the most operations in progress; 0 means 1.
	Workers int `json:"workers" jsonschema:"minimum=0,maximum=1000"`
}

// KymaVersion is the Kyma that runtimes are upgraded to.
type KymaVersion struct {
	Version string `json:"version,omitempty"`
}

// ClusterVersion is the cluster that runtimes are upgraded to.
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
	// KymaConfig is what the operation upgrades to; only for one operation.
	KymaConfig *KymaVersion `json:"kymaConfig,omitempty"`
	// ClusterConfig is what the operation upgrades to; only for one operation.
	ClusterConfig *ClusterVersion `json:"clusterConfig,omitempty"`
}

// RetryAnswer says what became of a request to retry operations (docs/contracts/processes.md#orchestrations).
type RetryAnswer struct {
	OrchestrationID   string   `json:"orchestrationID" jsonschema:"format=uuid"`
	RetryShoots       []string `json:"retryShoots"`
	OldOperations     []string `json:"oldOperations"`
	InvalidOperations []string `json:"invalidOperations"`
	Msg               string   `json:"msg"`
}
