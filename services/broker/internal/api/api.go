// Package api decides what each request does: those of platforms (osb.Broker), the upgrades of orchestrations, and the step
// Remove_Instance. A decision that depends on stored data is made in the transaction that also records it.
package api

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/services/broker/internal/binding"
	"github.com/kyma-project/keb/services/broker/internal/catalog"
	"github.com/kyma-project/keb/services/broker/internal/credential"
	"github.com/kyma-project/keb/services/broker/internal/exchange"
	"github.com/kyma-project/keb/services/broker/internal/instance"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Config holds the settings of an installation that affect requests.
type Config struct {
	// EUAccounts are the global accounts that may order in platform regions with EU access.
	EUAccounts []string
	// EURejection is the message for all other global accounts.
	EURejection string
	// RetryAfter is the polling interval that the broker suggests to platforms.
	RetryAfter time.Duration
	// MaximumPolling is the time after which an unfinished operation is reported as failed.
	MaximumPolling time.Duration
	// TrialLifetime and FreeLifetime are the ages from which instances of these plans can expire.
	TrialLifetime, FreeLifetime time.Duration
	// SingleTrial limits a global account to one instance of plan trial.
	SingleTrial bool
	// TrialDocumentation is a URL that the metadata of trials contains. Empty omits it.
	TrialDocumentation string
	// SubaccountMovement allows an update to move an instance to another global account.
	SubaccountMovement bool
	// PublicURL is the URL of this service for customers, without a trailing slash. If it is set, the metadata of an instance
	// contains the URL of its kubeconfig.
	PublicURL string
}

// Deps are the dependencies of a Broker.
type Deps struct {
	Catalog    *catalog.Catalog
	Store      *store.Store
	Vault      *credential.Vault
	Bindings   *binding.Service
	Rejections *exchange.Rejections
	// Notify receives the instance of each committed request. It must not block.
	Notify func(instanceID string)
	Log    *slog.Logger
	Now    func() time.Time
}

// Broker implements the Open Service Broker API.
type Broker struct {
	cfg  Config
	deps Deps
	// usual is how long operations usually take. It is nil before RunUsual has read it.
	usual atomic.Pointer[map[instance.Kind]time.Duration]
}

var _ osb.Broker = (*Broker)(nil)

// New creates a broker.
func New(cfg Config, deps Deps) *Broker { return &Broker{cfg: cfg, deps: deps} }

// Catalog returns the catalog of a platform region.
func (b *Broker) Catalog(_ context.Context, region string) (*osb.Catalog, error) {
	return b.deps.Catalog.Document(region), nil
}

// answer converts an error of the store for the platform: an unavailable database is 503.
func answer(err error) error {
	if errors.Is(err, store.ErrUnavailable) {
		return osb.Unavailable(err)
	}
	return err
}

// extensions returns the CloudEvents extensions of a request: the trace and the originating identity.
func extensions(ctx context.Context, call osb.Call, operationID string) map[string]string {
	e := tracing.Extension(ctx)
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("keb.operation.id", operationID))
	if call.OriginatingIdentity != nil {
		e["originatingidentity"] = osb.FormatOriginatingIdentity(*call.OriginatingIdentity)
	}
	return e
}

// audit logs the principal that requested a change.
func (b *Broker) audit(call osb.Call, action, instanceID, operationID string, more ...any) {
	attrs := []any{
		"action", action, "instance_id", instanceID, "operation_id", operationID, "request_id", call.ID,
		"principal", call.Principal.Name, "scheme", call.Principal.Scheme, "platform_region", call.Region,
	}
	if o := call.OriginatingIdentity; o != nil {
		attrs = append(attrs, "originating_platform", o.Platform, "originating_identity", string(o.Value))
	}
	attrs = append(attrs, more...)
	b.deps.Log.Info("audit", attrs...)
}

func (b *Broker) timedOut(o *instance.Operation) bool {
	return b.deps.Now().Sub(o.CreatedAt) > b.cfg.MaximumPolling
}

func (b *Broker) checkEUAccess(region, globalAccount string) error {
	if catalog.EUAccess(region) && !slices.Contains(b.cfg.EUAccounts, globalAccount) {
		return osb.Unprocessable("%s", b.cfg.EURejection)
	}
	return nil
}

// newOperationID returns an id that grows with time, so that new rows are appended at the end of the primary key's index.
func newOperationID() string { return uuid.Must(uuid.NewV7()).String() }

// newShootID returns the id from which the cluster's name is derived. The name uses the beginning of the id, so it must be
// random and not a time.
func newShootID() string { return uuid.NewString() }
