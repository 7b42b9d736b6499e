// Package osbtest checks a service broker against the Open Service Broker API:
// the cases of docs/contracts/osb.md, each under its id, over real HTTP against
// any base URL.
//
// Some cases need actions that only the owner of the broker can perform, such as
// making an operation fail; Hooks contains functions for them. Others need optional
// features of the catalog. A case without its prerequisites is reported by name and
// counted as not run.
package osbtest

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"time"
)

// Config describes the broker under test.
type Config struct {
	// BaseURL is the URL before /v2. Client sends the requests; nil means http.DefaultClient.
	BaseURL string
	Client  *http.Client
	// User and Password are valid credentials. BadTokens are bearer tokens that the broker must reject, by reason.
	User, Password string
	BadTokens      map[string]string

	Fixtures Fixtures
	Hooks    Hooks

	// Parameters and Context return valid values for a plan; nil means none.
	Parameters func(planID string) map[string]any
	Context    func(planID string) map[string]any
	// RequireOrgSpace reports whether the broker requires organization_guid and space_guid.
	RequireOrgSpace bool
	// BodyLimit is the maximum size of a body in bytes; zero means 1 MiB.
	BodyLimit int
	// RetryAfterMin and RetryAfterMax are the limits of Retry-After; zero means 1 s and 1 h.
	RetryAfterMin, RetryAfterMax time.Duration
	// OperationTimeout is the maximum duration of an operation; zero means 30 s. PollEvery is the polling interval; zero means 20 ms.
	OperationTimeout, PollEvery time.Duration
	// Rounds limits the rounds of the repeating cases (P23, F02, D14); zero means the number of the case.
	Rounds int
	// Secrets must not occur in any answer of the broker.
	Secrets []string

	// Groups are the letters of the groups to run; empty means G, C, P, L, F, D and O. Only limits the run to these case ids.
	Groups string
	Only   []string
	// RequireAll makes a case without its prerequisites fail.
	RequireAll bool
}

// Fixtures describe the catalog and the behaviour of the broker. Only ServiceID and PlanA are always required.
type Fixtures struct {
	// ServiceID and PlanA are the offering and the plan of most cases; PlanB is a plan that PlanA can change to.
	ServiceID, PlanA, PlanB string
	// PlanFixed is not plan_updateable, PlanUnbindable is not bindable, PlanMaintained has maintenance_info, and PlanOptional requires no
	// parameters.
	PlanFixed, PlanUnbindable, PlanMaintained, PlanOptional string
	// OtherPlan is a plan of another offering than ServiceID.
	OtherPlan string
	// ChangedParameters differ from the valid ones in relevant values.
	ChangedParameters map[string]any
	// CreateOnlyParameters are other values for members that only an order may set. It is empty for a broker without such members.
	CreateOnlyParameters map[string]any
	// InvalidParameters violate the schema of PlanA, at the JSON pointer InvalidPointer.
	InvalidParameters map[string]any
	InvalidPointer    string
	// AccountMembers are the context members that distinguish instances; RequiredMembers are the required ones.
	AccountMembers, RequiredMembers []string
	// DisplayContext contains irrelevant members of the context. RejectedContext contains members for which a quota or an allow-list rejects
	// the request.
	DisplayContext, RejectedContext map[string]any
	// LongestOperation is the maximum operation timeout of PlanA.
	LongestOperation time.Duration
	// Updates and Bindings report whether the broker supports them.
	Updates, Bindings bool
	// RejectedBindingParameters violate the binding schema; ChangedBindingParameters are valid and differ from the defaults.
	RejectedBindingParameters, ChangedBindingParameters map[string]any
	// PlanBindsAtOnce creates bindings synchronously, PlanBindsLater asynchronously. PlanNeedsApp can only be bound to an
	// application.
	PlanBindsAtOnce, PlanBindsLater, PlanNeedsApp string
	// BindingLimit is the maximum number of bindings of an instance.
	BindingLimit int
	// Rotation reports whether the bindings of PlanA can be rotated; PlanNotRotatable is bindable without rotation.
	Rotation         bool
	PlanNotRotatable string
}

// Hooks are actions that only the owner of the broker can perform. Each may be nil. A returned function reverts the
// change.
type Hooks struct {
	// Hold keeps operations in progress until release is called.
	Hold func(ctx context.Context) (release func(), err error)
	// Fail makes running provisionings and updates fail; FailDeprovision makes deprovisionings fail.
	Fail            func(ctx context.Context) (restore func(), err error)
	FailDeprovision func(ctx context.Context) (restore func(), err error)
	// Counts returns the total number of records and events of an instance.
	Counts func(ctx context.Context, instanceID string) (Counts, error)
	// Resources counts the resources of an instance in external systems.
	Resources func(ctx context.Context, instanceID string) (int, error)
	// Restart restarts the broker's process with the same configuration and address.
	Restart func(ctx context.Context) error
	// ChangeCatalog restarts the broker with another description of one plan.
	ChangeCatalog func(ctx context.Context) (restore func(), err error)
	// RaiseMaintenance gives PlanMaintained a newer version in its maintenance_info.
	RaiseMaintenance func(ctx context.Context) (restore func(), err error)
	// StartBroken starts another broker with a faulty catalog and returns its start error; nil means that it started.
	StartBroken func(ctx context.Context, fault CatalogFault) (offendingID string, refusal error)
	// Outage makes the broker's dependencies unavailable.
	Outage func(ctx context.Context) (restore func(), err error)
	// WorkedOff waits until an order of a disconnected platform has no further effect. Without it, the suite waits half a
	// second.
	WorkedOff func(ctx context.Context, instanceID string) error
	// Panic makes the handler panic once, at the next request.
	Panic func(ctx context.Context) error
	// Audit returns the recorded and published originating identity of an instance's newest operation.
	Audit func(ctx context.Context, instanceID string) (Identity, error)
	// Logs returns the log of the broker.
	Logs func(ctx context.Context) (string, error)
	// Purge deletes the record of a deprovisioned instance, so that only the tombstone is left.
	Purge func(ctx context.Context, instanceID string) error
	// Retry makes a step of running operations fail with a temporary error.
	Retry func(ctx context.Context) (restore func(), err error)
	// Expire makes an instance's operation in progress older than maximum_polling_duration.
	Expire func(ctx context.Context, instanceID string) error
	// KillOrchestrator kills the process that runs the operations, and starts it again.
	KillOrchestrator func(ctx context.Context) error
	// StepRuns counts the successful runs of each deprovisioning step of an instance.
	StepRuns func(ctx context.Context, instanceID string) (map[string]int, error)
	// Exhaust makes a clean-up step of running deprovisionings exhaust its retries; NotCompleted lists the steps recorded as
	// not completed, and Sweep runs the later clean-up.
	Exhaust      func(ctx context.Context) (restore func(), err error)
	NotCompleted func(ctx context.Context, instanceID string) ([]string, error)
	Sweep        func(ctx context.Context) error
	// ExpireBinding makes a binding expire, and CleanBindings runs the clean-up of expired bindings.
	ExpireBinding func(ctx context.Context, instanceID, bindingID string) error
	CleanBindings func(ctx context.Context) error
}

// Counts contains the numbers of a broker's records and events of an instance.
type Counts struct {
	Operations int
	Requests   int
}

// Identity is a recorded originating identity.
type Identity struct {
	Platform string
	Value    json.RawMessage
}

// CatalogFault is the fault of a catalog.
type CatalogFault string

// The faults of case C16.
const (
	DuplicatePlanID CatalogFault = "duplicate plan id"
	InvalidSchema   CatalogFault = "invalid schema"
)

// has reports whether a need, the name of a field of Hooks or Fixtures, is met.
func (c *Config) has(need string) bool {
	for _, holder := range []any{c.Hooks, c.Fixtures} {
		if field := reflect.ValueOf(holder).FieldByName(need); field.IsValid() {
			return !field.IsZero()
		}
	}
	panic("osbtest: a case needs " + need + ", which is neither a hook nor a fixture")
}

func (c *Config) setDefaults() {
	if c.Client == nil {
		c.Client = &http.Client{}
	}
	if c.BodyLimit == 0 {
		c.BodyLimit = 1 << 20
	}
	if c.RetryAfterMin == 0 {
		c.RetryAfterMin = time.Second
	}
	if c.RetryAfterMax == 0 {
		c.RetryAfterMax = time.Hour
	}
	if c.OperationTimeout == 0 {
		c.OperationTimeout = 30 * time.Second
	}
	if c.PollEvery == 0 {
		c.PollEvery = 20 * time.Millisecond
	}
	if c.Groups == "" {
		c.Groups = "GCPLFDO"
	}
}

func (c *Config) rounds(n int) int {
	if c.Rounds > 0 {
		return min(n, c.Rounds)
	}
	return n
}
