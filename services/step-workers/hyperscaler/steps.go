package hyperscaler

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/internal/kube"
)

// Name is the name of the worker and of its details.
const Name = "hyperscaler"

const component = "hyperscaler"

// Details are the data that the worker saves about an instance.
type Details struct {
	// TargetSecret is the name of the Gardener secret of the account.
	TargetSecret string `json:"targetSecret,omitempty"`
	// ClaimedAt is the time of the claim; zero for a shared account.
	ClaimedAt time.Time `json:"claimedAt,omitzero"`
	// Tenant is the global account that claimed the account; empty for a shared account.
	Tenant string `json:"tenant,omitempty"`
}

type shared struct {
	cfg  Config
	pool *pool
}

// Steps creates the steps of the worker.
func Steps(cfg Config, deps extclient.Deps) ([]worker.Step, error) {
	cfg.ClaimTime = cmp.Or(cfg.ClaimTime, 24*time.Hour)
	gardener, err := cfg.Open(deps)
	s := &shared{cfg: cfg, pool: &pool{kube: gardener, namespace: cfg.Namespace(), claimTime: cfg.ClaimTime, now: deps.Clock()}}
	return []worker.Step{
		worker.NewStep("Resolve_Target_Secret", component, s.resolveTargetSecret, worker.Description{
			Summary: "Assigns the account of its tenant to the instance, or claims a free one. Trials share the least used accounts.",
			Calls:   worker.Calls(system, "list secretbindings", "patch secretbindings", "list shoots"),
			Details: []string{"targetSecret", "claimedAt", "tenant"},
		}),
		worker.NewStep("Release_Subscription", component, s.releaseSubscription, worker.Description{
			Summary: "Marks the accounts of the tenant for cleaning that are not used by a cluster or an order in progress.",
			Calls:   worker.Calls(system, "list secretbindings", "list shoots", "patch secretbindings"),
			Details: []string{"targetSecret", "claimedAt", "tenant"},
		}),
	}, err
}

// Questions creates the questions of the worker.
func Questions(cfg Config, deps extclient.Deps) ([]worker.Question, error) {
	gardener, err := cfg.Open(deps)
	w := windows{kube: gardener, namespace: cfg.Namespace()}
	return []worker.Question{{Subject: event.AskMaintenanceWindows, Answer: w.answer}}, err
}

const system = kube.SystemGardener

// EUAccess reports whether only staff in the EU may operate clusters of a platform region (docs/contracts/plans.md#eu-access).
func EUAccess(platformRegion string) bool {
	return platformRegion == "cf-eu11" || platformRegion == "cf-ch20"
}

// labelValue is the Kubernetes syntax of a label value. Any other text would also change the meaning of a selector.
var labelValue = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

// wanted returns the account that op needs or has claimed. A tenant is a global account. An order claims for the instance's current global
// account. A release is for the global account of the claim, which is a different one after the subaccount was moved.
func wanted(op worker.Operation) (want, error) {
	w := want{
		provider: strings.ToLower(op.Runtime.Provider), tenant: op.Context.GlobalAccountID, instance: op.InstanceID,
		eu: EUAccess(op.Context.PlatformRegion), shared: op.Plan.Name == "trial",
	}
	if op.Type == event.Deprovision {
		var d Details
		if err := op.Details(Name, &d); err != nil {
			return w, err
		}
		w.tenant = cmp.Or(d.Tenant, op.Context.Subscription())
	}
	if !labelValue.MatchString(w.provider) {
		return w, fmt.Errorf("runtime.provider: %q cannot be a label, want aws, azure, gcp or openstack", op.Runtime.Provider)
	}
	if !w.shared && !labelValue.MatchString(w.tenant) {
		return w, fmt.Errorf("context.globalAccountId, subscriptionGlobalAccountId: %q cannot be a label, want 1 to 63 letters, digits, \"-\", \"_\" or \".\"", w.tenant)
	}
	return w, nil
}
