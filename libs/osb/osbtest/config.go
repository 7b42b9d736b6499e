// Package osbtest checks a service broker against the Open Service Broker API:
// the cases of docs/contracts/osb.md, each under its id, over real HTTP against
// any base URL.
//
// Some cases need what only the owner of the broker can do, such as making an
// operation fail; those are functions in Hooks. Others need something in the
// catalog that not every broker has. A case whose need is not met is reported by
// name as not run and counted, never passed over in silence.
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
	// BaseURL is what stands before /v2. Client sends the requests; nil means http.DefaultClient.
	BaseURL string
	Client  *http.Client
	// User and Password are accepted by the broker. BadTokens are bearer tokens that it must refuse, by what is wrong.
	User, Password string
	BadTokens      map[string]string

	Fixtures Fixtures
	Hooks    Hooks

	// Parameters and Context return valid ones for a plan; nil means none.
	Parameters func(planID string) map[string]any
	Context    func(planID string) map[string]any
	// RequireOrgSpace tells that the broker insists on organization_guid and space_guid.
	RequireOrgSpace bool
	// BodyLimit is the longest body in bytes; zero means 1 MiB.
	BodyLimit int
	// RetryAfterMin and RetryAfterMax bound Retry-After; zero means 1 s and 1 h.
	RetryAfterMin, RetryAfterMax time.Duration
	// OperationTimeout is how long an operation may take; zero means 30 s. PollEvery is how often to ask; zero means 20 ms.
	OperationTimeout, PollEvery time.Duration
	// Rounds caps the rounds of the cases that repeat (P23, F02, D14); zero means as many as the case says.
	Rounds int
	// Secrets must not occur in any answer of the broker.
	Secrets []string

	// Groups are the letters of the groups to run; empty means G, C, P, L, F, D and O. Only, if not empty, are the case ids to run.
	Groups string
	Only   []string
	// RequireAll makes a case that is not run fail.
	RequireAll bool
}

// Fixtures name what is in the catalog and what the broker makes of it. Only ServiceID and PlanA are always needed.
type Fixtures struct {
	// ServiceID and PlanA name the plan that most cases use; PlanB is one that PlanA can change to.
	ServiceID, PlanA, PlanB string
	// PlanFixed is not plan_updateable, PlanUnbindable not bindable, PlanMaintained has maintenance_info and PlanOptional
	// requires no parameters.
	PlanFixed, PlanUnbindable, PlanMaintained, PlanOptional string
	// OtherPlan is a plan of another offering than ServiceID.
	OtherPlan string
	// Parameters that differ from the valid ones in what counts.
	ChangedParameters map[string]any
	// CreateOnlyParameters are other values for members that only an order may set; a broker without such members has none.
	CreateOnlyParameters map[string]any
	// InvalidParameters break the schema of PlanA, at the JSON pointer InvalidPointer.
	InvalidParameters map[string]any
	InvalidPointer    string
	// AccountMembers are the members of the context that make an instance another one; RequiredMembers those that must be there.
	AccountMembers, RequiredMembers []string
	// DisplayContext are members of the context that do not count. RejectedContext are members with which a quota or an
	// allow-list refuses the request.
	DisplayContext, RejectedContext map[string]any
	// LongestOperation is the longest operation timeout of PlanA.
	LongestOperation time.Duration
	// Updates and Bindings tell that the broker has them.
	Updates, Bindings bool
	// RejectedBindingParameters break the binding schema; ChangedBindingParameters are valid and no defaults.
	RejectedBindingParameters, ChangedBindingParameters map[string]any
	// PlanBindsAtOnce makes bindings within the request, PlanBindsLater only asynchronously. PlanNeedsApp is only bound to an
	// application.
	PlanBindsAtOnce, PlanBindsLater, PlanNeedsApp string
	// BindingLimit is how many bindings an instance may have.
	BindingLimit int
	// Rotation tells that the bindings of PlanA can be rotated; PlanNotRotatable is bindable, and its bindings cannot.
	Rotation         bool
	PlanNotRotatable string
}

// Hooks are what only the owner of the broker can do. Each may be nil. Those that return a function change something until
// it is called.
type Hooks struct {
	// Hold keeps operations in progress until it is released.
	Hold func(ctx context.Context) (release func(), err error)
	// Fail makes the provisionings and updates that run fail; FailDeprovision the deprovisionings.
	Fail            func(ctx context.Context) (restore func(), err error)
	FailDeprovision func(ctx context.Context) (restore func(), err error)
	// Counts tells what the broker recorded and published about an instance, ever.
	Counts func(ctx context.Context, instanceID string) (Counts, error)
	// Resources counts what exists in external systems for an instance.
	Resources func(ctx context.Context, instanceID string) (int, error)
	// Restart ends the broker's process and starts it again with the same configuration and address.
	Restart func(ctx context.Context) error
	// ChangeCatalog does the same with the description of one plan changed.
	ChangeCatalog func(ctx context.Context) (restore func(), err error)
	// RaiseMaintenance gives PlanMaintained a newer version in its maintenance_info.
	RaiseMaintenance func(ctx context.Context) (restore func(), err error)
	// StartBroken starts another broker with a faulty catalog and returns why it did not start; no error means that it did.
	StartBroken func(ctx context.Context, fault CatalogFault) (offendingID string, refusal error)
	// Outage takes away what the broker depends on.
	Outage func(ctx context.Context) (restore func(), err error)
	// WorkedOff waits until an order for an instance whose platform has hung up has no effect any more. Without it that is taken
	// to be so half a second later.
	WorkedOff func(ctx context.Context, instanceID string) error
	// Panic makes the handler panic once, at the next request.
	Panic func(ctx context.Context) error
	// Audit reads the originating identity that was recorded and published for the newest operation of an instance.
	Audit func(ctx context.Context, instanceID string) (Identity, error)
	// Logs reads the log of the broker so far.
	Logs func(ctx context.Context) (string, error)
	// Purge drops the record of a deprovisioned instance, so that only the tombstone is left.
	Purge func(ctx context.Context, instanceID string) error
	// Retry makes a step of the operations that run fail in a way that is tried again.
	Retry func(ctx context.Context) (restore func(), err error)
	// Expire makes the operation in progress of an instance older than maximum_polling_duration.
	Expire func(ctx context.Context, instanceID string) error
	// KillOrchestrator kills what runs the operations, without a chance to clean up, and starts it again.
	KillOrchestrator func(ctx context.Context) error
	// StepRuns counts how often each deprovisioning step of an instance succeeded.
	StepRuns func(ctx context.Context, instanceID string) (map[string]int, error)
	// Exhaust makes a clean-up step of the deprovisionings that run use up its retries; NotCompleted lists the steps recorded as
	// such, and Sweep runs the later clean-up.
	Exhaust      func(ctx context.Context) (restore func(), err error)
	NotCompleted func(ctx context.Context, instanceID string) ([]string, error)
	Sweep        func(ctx context.Context) error
	// ExpireBinding makes a binding one that has expired, and CleanBindings runs the clean-up of those that have.
	ExpireBinding func(ctx context.Context, instanceID, bindingID string) error
	CleanBindings func(ctx context.Context) error
}

// Counts is what a broker recorded and published about an instance.
type Counts struct {
	Operations int
	Requests   int
}

// Identity is an originating identity as it was recorded.
type Identity struct {
	Platform string
	Value    json.RawMessage
}

// CatalogFault is what is wrong with a catalog.
type CatalogFault string

// The faults of case C16.
const (
	DuplicatePlanID CatalogFault = "duplicate plan id"
	InvalidSchema   CatalogFault = "invalid schema"
)

// has tells whether a need, the name of a field of Hooks or Fixtures, is met.
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
