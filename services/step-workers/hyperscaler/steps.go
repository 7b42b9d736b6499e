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

// Deps are the dependencies of the steps.
type Deps = extclient.Deps

// Steps creates the steps of the worker.
func Steps(cfg Config, deps Deps) ([]worker.Step, error) {
	gardener, err := open(cfg, deps)
	if err != nil {
		return nil, err
	}
	p := &pool{kube: gardener, namespace: cfg.Namespace(), claimTime: cfg.ClaimTime, now: deps.Now}
	if p.now == nil {
		p.now = time.Now
	}
	return []worker.Step{resolveTargetSecret{cfg, p}, releaseSubscription{cfg, p}}, nil
}

// Questions creates the questions of the worker.
func Questions(cfg Config, deps Deps) ([]worker.Question, error) {
	gardener, err := open(cfg, deps)
	if err != nil {
		return nil, err
	}
	w := windows{kube: gardener, namespace: cfg.Namespace()}
	return []worker.Question{{Subject: event.AskMaintenanceWindows, Answer: w.answer}}, nil
}

const system = kube.SystemGardener

func open(cfg Config, deps Deps) (*kube.Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return cfg.Open(deps)
}

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
