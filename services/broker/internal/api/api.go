// Package api decides what the platform's requests do: it is the osb.Broker of
// this service. Every decision that depends on what exists is made in the
// transaction that also records it.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/services/broker/internal/binding"
	"github.com/kyma-project/keb/services/broker/internal/catalog"
	"github.com/kyma-project/keb/services/broker/internal/instance"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Config is what an installation decides about requests.
type Config struct {
	// EUAccounts are the global accounts that may order in platform regions with EU access.
	EUAccounts []string
	// EURejection is what others are told.
	EURejection string
	// RetryAfter is when a platform is told to poll again.
	RetryAfter time.Duration
	// MaximumPolling is after what time an unfinished operation is reported as failed.
	MaximumPolling time.Duration
	// TrialLifetime and FreeLifetime are how old instances of these plans must be to expire.
	TrialLifetime, FreeLifetime time.Duration
	// SingleTrial allows a global account one instance of plan trial.
	SingleTrial bool
	// TrialDocumentation is the address that trials are shown with; empty shows none.
	TrialDocumentation string
	// SubaccountMovement lets an update move an instance to another global account.
	SubaccountMovement bool
	// PublicURL is the address of this service as customers reach it, without a slash at its end; with it, instances are shown
	// with the address of their kubeconfig.
	PublicURL string
}

// Sealer encrypts the credentials of an instance, by name, and opens them to compare them. What cannot be opened is missing.
type Sealer interface {
	Seal(instanceID string, plain map[string]json.RawMessage) (store.Credentials, error)
	Open(sealed ...store.Secret) map[string]json.RawMessage
}

// Deps are what a Broker needs.
type Deps struct {
	Catalog  *catalog.Catalog
	Store    *store.Store
	Sealer   Sealer
	Bindings *binding.Service
	// Notify is told the instance of each committed request; it must not wait.
	Notify func(instanceID string)
	Log    *slog.Logger
	Now    func() time.Time
}

// Broker answers the Open Service Broker API.
type Broker struct {
	cfg  Config
	deps Deps
}

var _ osb.Broker = (*Broker)(nil)

// New makes a broker.
func New(cfg Config, deps Deps) *Broker { return &Broker{cfg: cfg, deps: deps} }

// Catalog returns the offers for a platform region.
func (b *Broker) Catalog(_ context.Context, region string) (*osb.Catalog, error) {
	return b.deps.Catalog.Document(region), nil
}

// answer turns an error of the store into one for the platform: a database that is away is 503.
func answer(err error) error {
	if errors.Is(err, store.ErrUnavailable) {
		return osb.Unavailable(err)
	}
	return err
}

// extensions are what travels with a request besides its payload.
func extensions(ctx context.Context, call osb.Call, operationID string) map[string]string {
	e := tracing.Extension(ctx)
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("keb.operation.id", operationID))
	if call.OriginatingIdentity != nil {
		e["originatingidentity"] = osb.FormatOriginatingIdentity(*call.OriginatingIdentity)
	}
	return e
}

// audit records who asked for a change.
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

// newOperationID is the id of an operation. Ids grow with time, so that the primary keys of whoever stores operations grow at
// one end.
func newOperationID() string { return uuid.Must(uuid.NewV7()).String() }

// newShootID is what the name of a cluster is made of: its beginning must differ, so it does not say the time.
func newShootID() string { return uuid.NewString() }
