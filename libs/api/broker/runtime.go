// Package broker is the operator-facing API of the broker: its client and the types on the wire, which the server, the command line, the
// jobs and the tests share. The OSB API is package osb, and its page api/osb.yaml. The schemas in api/broker.yaml are generated from the types and their comments.
package broker

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// RuntimeState is the state of a runtime (docs/contracts/broker.md#list-of-runtimes). The state deprovisionincomplete is a deprovisioned
// runtime with steps that were not completed.
type RuntimeState string

// States of a runtime.
const (
	RuntimeProvisioning RuntimeState = "provisioning"
	RuntimeSucceeded    RuntimeState = "succeeded"
	RuntimeUpdating     RuntimeState = "updating"
	RuntimeUpgrading    RuntimeState = "upgrading"
	// RuntimeFailed means that the provisioning or the deprovisioning failed.
	RuntimeFailed RuntimeState = "failed"
	// RuntimeError means that an update or upgrade failed; the runtime works.
	RuntimeError          RuntimeState = "error"
	RuntimeDeprovisioning RuntimeState = "deprovisioning"
	RuntimeSuspended      RuntimeState = "suspended"
	RuntimeIncomplete     RuntimeState = "deprovisionincomplete"
	RuntimeDeprovisioned  RuntimeState = "deprovisioned"
)

// RuntimeStates returns all states of a runtime.
func RuntimeStates() []RuntimeState {
	return []RuntimeState{
		RuntimeProvisioning, RuntimeSucceeded, RuntimeUpdating, RuntimeUpgrading, RuntimeFailed, RuntimeError, RuntimeDeprovisioning,
		RuntimeSuspended, RuntimeIncomplete, RuntimeDeprovisioned,
	}
}

// RuntimeList is a page of runtimes.
type RuntimeList struct {
	Data []Runtime `json:"data"`
	// Count is the number of entries on this page.
	Count int `json:"count"`
	// TotalCount is the number of entries on all pages.
	TotalCount int `json:"totalCount"`
}

// Runtime is an instance and its cluster (docs/contracts/broker.md#list-of-runtimes).
type Runtime struct {
	InstanceID      string `json:"instanceID"`
	RuntimeID       string `json:"runtimeID"`
	GlobalAccountID string `json:"globalAccountID"`
	// SubscriptionAccountID is the global account that is billed.
	SubscriptionAccountID string `json:"subscriptionGlobalAccountID"`
	SubAccountID          string `json:"subAccountID"`
	// Region is the region of the hyperscaler.
	Region string `json:"region"`
	// PlatformRegion is the region of the platform that ordered the instance.
	PlatformRegion  string `json:"subAccountRegion"`
	ShootName       string `json:"shootName"`
	ServiceID       string `json:"serviceClassID"`
	ServiceName     string `json:"serviceClassName"`
	ServicePlanID   string `json:"servicePlanID"`
	ServicePlanName string `json:"servicePlanName"`
	Provider        string `json:"provider"`
	Status          Status `json:"status"`
	UserID          string `json:"userID"`
	// InternalAVS is the ID of the internal evaluation in AVS. It is 0 if there is none.
	InternalAVS int64  `json:"avsInternalEvaluationID"`
	KymaVersion string `json:"kymaVersion,omitempty"`
	// KymaConfig is present if the query has kyma_config=true.
	KymaConfig *KymaConfig `json:"kymaConfig,omitempty"`
	// ClusterConfig is present if the query has cluster_config=true.
	ClusterConfig *ClusterConfig `json:"clusterConfig,omitempty"`
}

// Status is the status of a runtime, with its operations.
type Status struct {
	CreatedAt        time.Time    `json:"createdAt"`
	ModifiedAt       time.Time    `json:"modifiedAt"`
	ExpiredAt        time.Time    `json:"expiredAt,omitzero"`
	DeletedAt        time.Time    `json:"deletedAt,omitzero"`
	State            RuntimeState `json:"state"`
	Provisioning     *Operation   `json:"provisioning,omitempty"`
	Deprovisioning   *Operation   `json:"deprovisioning,omitempty"`
	UpgradingKyma    *Operations  `json:"upgradingKyma,omitempty"`
	UpgradingCluster *Operations  `json:"upgradingCluster,omitempty"`
	Update           *Operations  `json:"update,omitempty"`
	Suspension       *Operations  `json:"suspension,omitempty"`
	Unsuspension     *Operations  `json:"unsuspension,omitempty"`
}

// Operations returns the operations of all kinds, oldest first.
func (s *Status) Operations() []Operation {
	var all []Operation
	for _, one := range []*Operation{s.Provisioning, s.Deprovisioning} {
		if one != nil {
			all = append(all, *one)
		}
	}
	for _, several := range []*Operations{s.UpgradingKyma, s.UpgradingCluster, s.Update, s.Suspension, s.Unsuspension} {
		if several != nil {
			all = append(all, several.Data...)
		}
	}
	slices.SortStableFunc(all, func(a, b Operation) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return all
}

// Operations is a list of operations of one kind, newest first. It may be incomplete.
type Operations struct {
	Data       []Operation `json:"data"`
	TotalCount int         `json:"totalCount"`
	Count      int         `json:"count"`
}

// Operation is an operation on a runtime.
type Operation struct {
	// State uses the spelling of the original broker: a cancelled operation is canceled.
	State           string              `json:"state" jsonschema:"enum=pending,enum=in progress,enum=succeeded,enum=failed,enum=canceled"`
	Type            event.OperationType `json:"type"`
	Description     string              `json:"description"`
	CreatedAt       time.Time           `json:"createdAt"`
	UpdatedAt       time.Time           `json:"updatedAt"`
	OperationID     string              `json:"operationID"`
	OrchestrationID string              `json:"orchestrationID,omitempty"`
	// NotCompleted lists the steps that were not completed and that the operation continued without.
	NotCompleted   []string `json:"executedButNotCompletedSteps,omitempty"`
	RuntimeVersion string   `json:"runtimeVersion,omitempty"`
	// DryRun reports whether the operation changes nothing in the runtime.
	DryRun bool `json:"dryRun,omitempty"`
}

// KymaConfig is the known Kyma configuration of a runtime. The rest is generated when the configuration is applied, and contains secrets.
type KymaConfig struct {
	Version    string      `json:"version"`
	Components []Component `json:"components,omitempty"`
}

// Component is a component of Kyma.
type Component struct {
	Component string `json:"component"`
}

// ClusterConfig is the known configuration of the cluster. It uses the field names of the Runtime Provisioner
// (docs/contracts/runtime-provisioner.md#provisionruntime).
type ClusterConfig struct {
	Name           string          `json:"name"`
	Provider       string          `json:"provider"`
	Region         string          `json:"region"`
	TargetSecret   string          `json:"targetSecret,omitempty"`
	MachineType    string          `json:"machineType,omitempty"`
	VolumeSizeGB   int             `json:"volumeSizeGB,omitempty"`
	AutoScalerMin  int             `json:"autoScalerMin,omitempty"`
	AutoScalerMax  int             `json:"autoScalerMax,omitempty"`
	MaxSurge       *int            `json:"maxSurge,omitempty"`
	MaxUnavailable *int            `json:"maxUnavailable,omitempty"`
	Zones          []string        `json:"zones,omitempty"`
	Purpose        string          `json:"purpose,omitempty"`
	LicenceType    string          `json:"licenceType,omitempty"`
	EUAccess       bool            `json:"euAccess"`
	OIDC           json.RawMessage `json:"oidcConfig,omitempty"`
	Administrators []string        `json:"administrators,omitempty"`
}

// Info is a runtime in the older list (docs/contracts/broker.md#older-list-of-runtimes).
type Info struct {
	RuntimeID       string     `json:"runtimeId"`
	GlobalAccountID string     `json:"globalAccountId"`
	SubaccountID    string     `json:"subaccountId"`
	PlatformRegion  string     `json:"subaccountRegion"`
	InstanceID      string     `json:"serviceInstanceId"`
	ServiceID       string     `json:"serviceClassId"`
	ServiceName     string     `json:"serviceClassName"`
	PlanID          string     `json:"servicePlanId"`
	PlanName        string     `json:"servicePlanName"`
	Status          InfoStatus `json:"status"`
}

// InfoStatus is the status of a runtime in the older list.
type InfoStatus struct {
	CreatedAt      time.Time      `json:"createdAt"`
	UpdatedAt      time.Time      `json:"updatedAt"`
	DeletedAt      time.Time      `json:"deletedAt,omitzero"`
	Provisioning   *InfoOperation `json:"provisioning,omitempty"`
	Deprovisioning *InfoOperation `json:"deprovisioning,omitempty"`
}

// InfoOperation is an operation in the older list.
type InfoOperation struct {
	State       string `json:"state"`
	Description string `json:"description"`
}

// InfoFailure is an error of the older list. The log has the details, under the request ID.
type InfoFailure struct {
	Status    int    `json:"status"`
	RequestID string `json:"requestId"`
	Message   string `json:"message"`
}

// Retriggered is the answer to a request to repeat an incomplete deprovisioning.
type Retriggered struct {
	// Operation is the running deprovisioning. With dry_run it is set only if a deprovisioning is already running.
	Operation string `json:"operation,omitempty"`
	DryRun    bool   `json:"dryRun,omitempty"`
	// Action is what a request without dry_run would do. It is set only with dry_run.
	Action string `json:"action,omitempty"`
	// NotCompleted lists the steps that were not completed. It is set only with dry_run.
	NotCompleted []string `json:"executedButNotCompletedSteps,omitempty"`
}

// Expired is the answer to a request to expire an instance.
type Expired struct {
	// Operation suspends the instance. It is empty if the instance is already suspended.
	Operation string `json:"operation"`
}

// Failure is an error of the operator routes.
type Failure struct {
	// Error is a human-readable message.
	Error string `json:"error"`
}

// OSBFailure is an error in the format of the OSB API. The expiry route and the request limit return it.
type OSBFailure struct {
	Error       string `json:"error,omitempty"`
	Description string `json:"description"`
}

// KubeconfigFailure is an error of the kubeconfig route. Its field starts with a capital letter.
type KubeconfigFailure struct {
	// Error is a human-readable message.
	Error string
}
