// Package binding creates and removes service bindings: short-lived kubeconfigs of runtimes (docs/contracts/broker.md#bindings).
//
// The service inserts the row of a binding before the worker runtime creates the access, and deletes the row after the access
// is removed. A crash therefore leaves a row for every access: the same request takes the row over, or the clean-up removes
// both. A process claims the row while it works on the access. A claim expires.
package binding

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/services/broker/internal/catalog"
	"github.com/kyma-project/keb/services/broker/internal/credential"
	"github.com/kyma-project/keb/services/broker/internal/exchange"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Config holds the settings of an installation for bindings.
type Config struct {
	// Timeout is the time in which the worker runtime must create or remove an access.
	Timeout time.Duration
	// Limit is the maximum number of unexpired bindings of an instance.
	Limit int
	// Every is the interval of the clean-up, and of its retries.
	Every time.Duration
	// Grace is how long an unfinished binding is kept, so that the platform can repeat its request.
	Grace time.Duration
	// Keep is how long a removed binding is remembered.
	Keep time.Duration
}

// Deps are the dependencies of a Service.
type Deps struct {
	Store      *store.Store
	Bus        *bus.Bus
	Keys       *seal.Keyring
	Vault      *credential.Vault
	Catalog    *catalog.Catalog
	Rejections *exchange.Rejections
	Log        *slog.Logger
	Now        func() time.Time
}

// Service is safe for concurrent use, also by several processes with one database.
type Service struct {
	cfg  Config
	deps Deps
}

// New creates a service. Run starts its clean-up.
func New(cfg Config, deps Deps) *Service { return &Service{cfg: cfg, deps: deps} }

// margin is the time that a claim outlasts the deadline of the claimed work.
const margin = 5 * time.Second

// claim sets the claim of b to the caller's.
func (s *Service) claim(b *store.Binding, id string, now time.Time) {
	b.Claim, b.ClaimedUntil = id, now.Add(s.cfg.Timeout+margin)
	b.DueAt = b.ClaimedUntil.Add(s.cfg.Grace)
}

// release releases a claim, even if ctx has ended. A claim that cannot be released expires.
func (s *Service) release(ctx context.Context, b *store.Binding, due time.Time) {
	if err := s.deps.Store.ReleaseBinding(context.WithoutCancel(ctx), b, s.deps.Now(), due); err != nil {
		s.deps.Log.Warn("claim of a binding not released", "instance_id", b.InstanceID, "binding_id", b.ID, "err", err)
	}
}

var errNoRuntime = errors.New("the runtime of the instance is not known")

// access returns the address of a binding's runtime. For an own cluster it includes the customer's kubeconfig.
func (s *Service) access(ctx context.Context, b *store.Binding) (event.RuntimeAccess, error) {
	at := event.RuntimeAccess{InstanceID: b.InstanceID, Account: b.Account, RuntimeID: b.RuntimeID}
	// The subaccount may have moved in the meantime.
	switch i, err := s.deps.Store.Instance(ctx, b.InstanceID); {
	case err == nil:
		at.Account = i.Context.GlobalAccountID
	case !errors.Is(err, store.ErrNotFound):
		return at, err
	}
	sealed, err := s.deps.Store.SealedCredential(ctx, b.InstanceID, event.CredentialsKubeconfig)
	switch {
	case errors.Is(err, store.ErrNotFound) && b.RuntimeID == "":
		return at, errNoRuntime
	case errors.Is(err, store.ErrNotFound):
		return at, nil
	case err != nil:
		return at, err
	}
	plain := s.deps.Vault.Open(sealed)
	var own struct {
		Kubeconfig string `json:"kubeconfig"`
	}
	if err := json.Unmarshal(plain[event.CredentialsKubeconfig], &own); err != nil {
		return at, errors.New("the kubeconfig of the own cluster is not readable")
	}
	at.Kubeconfig = own.Kubeconfig
	return at, nil
}

func ownerOf(b *store.Binding) []byte {
	return credential.Owner(store.SecretBindings, store.Secret{InstanceID: b.InstanceID, Name: b.ID, Revision: b.Revision})
}

func (s *Service) seal(b *store.Binding, kubeconfig string) error {
	b.Revision = rand.Text()
	sealed, err := s.deps.Keys.Seal([]byte(kubeconfig), ownerOf(b))
	if err != nil {
		return fmt.Errorf("seal kubeconfig: %w", err)
	}
	b.Sealed = sealed
	return nil
}

// Made is a binding with an existing access.
type Made struct {
	// Kubeconfig is a secret.
	Kubeconfig string
	Expiration time.Duration
	ExpiresAt  time.Time
	// RenewBefore is the time by which the next binding should exist.
	RenewBefore time.Time
}

// open decrypts a binding's kubeconfig.
func (s *Service) open(b *store.Binding) (*Made, error) {
	plain, err := s.deps.Keys.Open(b.Sealed, ownerOf(b))
	if err != nil {
		return nil, fmt.Errorf("open kubeconfig of binding %q of instance %q: %w", b.ID, b.InstanceID, err)
	}
	// The last fifth of the lifetime is for the rotation.
	return &Made{
		Kubeconfig: string(plain), Expiration: b.Expiration, ExpiresAt: b.ExpiresAt, RenewBefore: b.ExpiresAt.Add(-b.Expiration / 5),
	}, nil
}
