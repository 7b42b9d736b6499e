package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
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
	StatePaused     = "paused"
)

// PauseReason is why an orchestration starts no further operations.
type PauseReason string

// Reasons of a pause.
const (
	// PausedByOperator means that an operator has paused the orchestration.
	PausedByOperator PauseReason = "operator"
	// PausedForApproval means that the canary has ended, and an operator must approve the other operations.
	PausedForApproval PauseReason = "approval"
	// PausedByFailures means that more operations have failed than the strategy allows.
	PausedByFailures PauseReason = "failures"
)

// PauseReasons returns all reasons of a pause.
func PauseReasons() []PauseReason {
	return []PauseReason{PausedByOperator, PausedForApproval, PausedByFailures}
}

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
	return []OrchestrationState{StatePending, StateInProgress, StateRetrying, StatePaused, StateCanceling, StateSucceeded, StateFailed, StateCanceled}
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

// Prose returns a state in the spelling of texts: the wire has "canceled", texts have "cancelled".
func Prose[T ~string](state T) string {
	if text, ok := strings.CutPrefix(string(state), "cancel"); ok && !strings.HasPrefix(text, "l") {
		return "cancell" + text
	}
	return string(state)
}

// Stats counts the operations of an orchestration by state.
type Stats map[MemberState]int

// String lists the states that have operations, with their numbers, in the spelling of texts.
func (s Stats) String() string {
	var parts []string
	for _, state := range MemberStates() {
		if n := s[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, Prose(state)))
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
	// StartedAt is when the first operation could start.
	StartedAt *time.Time `json:"startedAt,omitempty"`
	// Pause is why no further operation starts. It is set only in the state paused.
	Pause    *Pause   `json:"pause,omitempty"`
	Progress Progress `json:"progress"`
	// Failures groups the failed operations by their error, the most frequent first, at most 20. It is absent in lists.
	Failures []FailureGroup `json:"failures,omitempty"`
	// OperationStats counts operations by state. It is absent in lists.
	OperationStats Stats `json:"operationStats,omitempty"`
}

// Status returns the state of the orchestration for texts. It says what a paused orchestration waits for.
func (o *Orchestration) Status() string {
	if o.State == StatePaused && o.Pause != nil && o.Pause.Reason == PausedForApproval {
		return "waiting for approval"
	}
	return Prose(o.State)
}

// Pause describes why and since when an orchestration is paused.
type Pause struct {
	Reason PauseReason `json:"reason"`
	// By is the operator who paused the orchestration. It is absent for other reasons.
	By    string    `json:"by,omitempty"`
	Since time.Time `json:"since"`
}

// Progress counts the operations of an orchestration. Operations that a retry has replaced do not count.
type Progress struct {
	Total int `json:"total"`
	// Ended is the number of operations that succeeded, failed, were cancelled or skipped.
	Ended      int `json:"ended"`
	Succeeded  int `json:"succeeded"`
	Failed     int `json:"failed"`
	InProgress int `json:"inProgress"`
	// Waiting is the number of operations that are still to be started.
	Waiting int `json:"waiting"`
	// PerMinute is the number of operations that ended per minute since the orchestration started or was resumed. It is absent unless the
	// orchestration runs.
	PerMinute float64 `json:"perMinute,omitempty"`
	// EstimatedEnd follows from PerMinute and the next maintenance windows. It is absent unless the orchestration runs.
	EstimatedEnd *time.Time `json:"estimatedEnd,omitempty"`
}

// FailureGroup counts failed operations with the same error.
type FailureGroup struct {
	// Error is the error without identifiers and numbers that differ.
	Error string `json:"error"`
	Count int    `json:"count"`
	// Sample is the message of one of the operations, and OperationID its ID.
	Sample      string `json:"sample"`
	OperationID string `json:"operationID" jsonschema:"format=uuid"`
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
	// KymaVersion and KubernetesVersion match runtimes that are known to have this version, or one that begins with it: 2.20 matches 2.20.1.
	KymaVersion       string `json:"kymaVersion,omitempty"`
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// Failed matches runtimes whose last operation failed.
	Failed bool `json:"failed,omitempty"`
}

// IsVersion reports whether a version is the one that a target wants, or begins with it, as 2.20.1 begins with 2.20. Every version matches
// a target without one.
func IsVersion(want, version string) bool {
	rest, ok := strings.CutPrefix(version, want)
	return want == "" || ok && (rest == "" || strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "-"))
}

// Strategy is the order and timing of the operations.
type Strategy struct {
	Type string `json:"type" jsonschema:"enum=parallel"`
	// Schedule is "immediate", "now" or an RFC 3339 time.
	Schedule string `json:"schedule"`
	// MaintenanceWindow delays each operation until the maintenance window of its runtime.
	MaintenanceWindow bool     `json:"maintenanceWindow,omitempty"`
	Parallel          Parallel `json:"parallel"`
	// Canary upgrades a few runtimes first.
	Canary *Canary `json:"canary,omitempty"`
	// MaxFailures is how many operations may fail: a number, or a percentage such as 10%. If more fail, the orchestration is paused.
	MaxFailures MaxFailures `json:"maxFailures,omitempty"`
}

// What happens after the operations of a canary have succeeded.
const (
	// CanaryApproval means that an operator must approve the other operations.
	CanaryApproval = "approval"
	// CanarySuccess means that the other operations start if all operations of the canary have succeeded. Otherwise they wait for approval.
	CanarySuccess = "success"
)

// Canary upgrades a few runtimes before all others.
type Canary struct {
	// Size is the number of runtimes of the canary.
	Size int `json:"size" jsonschema:"minimum=1,maximum=100000"`
	// Then is approval or success; absent means approval. With success the other operations start when all operations of the canary have
	// succeeded.
	Then string `json:"then,omitempty" jsonschema:"enum=approval,enum=success"`
}

// MaxFailures is a number of operations, such as "5", or a percentage of them, such as "10%". Empty means no limit.
type MaxFailures string

// UnmarshalJSON accepts a number as well as a string.
func (m *MaxFailures) UnmarshalJSON(data []byte) error {
	var number json.Number
	if err := json.Unmarshal(data, &number); err == nil {
		*m = MaxFailures(number)
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return errors.New("strategy.maxFailures: must be a number such as 5, or a percentage such as \"10%\"")
	}
	*m = MaxFailures(text)
	return nil
}

// Limit returns how many of a number of operations may fail, and false if there is no limit. It rounds down. The error names the allowed
// values.
func (m MaxFailures) Limit(operations int) (limit int, ok bool, err error) {
	if m == "" {
		return 0, false, nil
	}
	text, percent := strings.CutSuffix(string(m), "%")
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxFailures || percent && n > 100 {
		return 0, false, fmt.Errorf("%.50q: must be a number from 0 to %d, or a percentage from 0%% to 100%%", string(m), maxFailures)
	}
	if percent {
		return operations * n / 100, true, nil
	}
	return n, true, nil
}

// maxFailures is the maximum number in MaxFailures.
const maxFailures = 1_000_000

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
	// Canary reports whether the operation belongs to the canary.
	Canary bool `json:"canary,omitempty"`
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

// Upgrade orders an orchestration. what is "kyma" or "cluster". It returns the ID and the raw answer.
func (c *Client) Upgrade(ctx context.Context, what string, u *Upgrade) (string, json.RawMessage, error) {
	out, raw, err := write[OrchestrationID](ctx, c, http.MethodPost, "/upgrade/"+what, u, "upgrade %s", what)
	if err != nil {
		return "", nil, err
	}
	return out.OrchestrationID, raw, nil
}

// Orchestrations returns orchestrations, and the raw answer.
func (c *Client) Orchestrations(ctx context.Context, p Page) (*List[Orchestration], json.RawMessage, error) {
	return read[List[Orchestration]](ctx, c, "/orchestrations", p.query(), "list orchestrations")
}

// Orchestration returns one orchestration, and the raw answer. The error is ErrNotFound if there is no such orchestration.
func (c *Client) Orchestration(ctx context.Context, id string) (*Orchestration, json.RawMessage, error) {
	return read[Orchestration](ctx, c, orchestrationPath(id, ""), nil, "orchestration %s", id)
}

// Members returns the operations of an orchestration, and the raw answer. The error is ErrNotFound if there is no such orchestration.
func (c *Client) Members(ctx context.Context, id string, p Page) (*List[Member], json.RawMessage, error) {
	return read[List[Member]](ctx, c, orchestrationPath(id, "/operations"), p.query(), "operations of orchestration %s", id)
}

// Member returns one operation of an orchestration, and the raw answer. The error is ErrNotFound if the orchestration or the operation does
// not exist.
func (c *Client) Member(ctx context.Context, id, operation string) (*Member, json.RawMessage, error) {
	return read[Member](ctx, c, orchestrationPath(id, "/operations/"+url.PathEscape(operation)), nil, "operation %s of orchestration %s", operation, id)
}

// CancelOrchestration cancels the operations that have not started, and returns the raw answer. The error is ErrNotFound if there is no
// such orchestration.
func (c *Client) CancelOrchestration(ctx context.Context, id string) (json.RawMessage, error) {
	_, raw, err := write[OrchestrationID](ctx, c, http.MethodPut, orchestrationPath(id, "/cancel"), nil, "cancel orchestration %s", id)
	return raw, err
}

// ChangeOrchestration pauses, resumes or approves an orchestration; action is "pause", "resume" or "approve". It also returns the raw answer.
// The error is ErrNotFound if there is no such orchestration.
func (c *Client) ChangeOrchestration(ctx context.Context, id, action string) (*Orchestration, json.RawMessage, error) {
	return write[Orchestration](ctx, c, http.MethodPut, orchestrationPath(id, "/"+action), nil, "%s orchestration %s", action, id)
}

// RetryOrchestration retries the given operations, or all failed ones if none is given, and those that were cancelled with it. It also returns the raw answer. The
// error is ErrNotFound if there is no such orchestration.
func (c *Client) RetryOrchestration(ctx context.Context, id string, operations []string, now bool) (*RetryAnswer, json.RawMessage, error) {
	form := url.Values{}
	if len(operations) > 0 {
		form["operation-id"] = operations
	}
	if now {
		form.Set("immediate", strconv.FormatBool(true))
	}
	var out RetryAnswer
	raw, err := c.send(ctx, http.MethodPost, orchestrationPath(id, "/retry"), "application/x-www-form-urlencoded", []byte(form.Encode()), &out)
	if err != nil {
		return nil, nil, fmt.Errorf("retry orchestration %s: %w", id, err)
	}
	return &out, raw, nil
}

func orchestrationPath(id, rest string) string { return "/orchestrations/" + url.PathEscape(id) + rest }
