// Package binding makes and removes service bindings: short-lived kubeconfigs of runtimes (facts/keb.md 1.13).
//
// A binding is reserved in the database before the worker runtime makes its access, and its row goes after the access is
// removed. So a crash at any point leaves a row that tells of the access: the same request takes it over, or the clean-up
// removes both. Whoever works on the access holds a claim on the row, which ends by itself.
package binding

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Config is what an installation decides about bindings.
type Config struct {
	// Timeout is how long the worker runtime may take to make or remove an access.
	Timeout time.Duration
	// Limit is how many bindings of an instance there may be that have not expired.
	Limit int
	// Every is how often bindings that are due are removed, and when that is tried again.
	Every time.Duration
	// Grace is how long a binding that was not finished is left for the same request to come again.
	Grace time.Duration
	// Keep is how long is remembered that there was a binding.
	Keep time.Duration
}

// Asker asks the worker runtime.
type Asker interface {
	AskWithin(ctx context.Context, wait time.Duration, subject string, request, answer any) error
}

// Sealer encrypts with authentication; see package seal.
type Sealer interface {
	Seal(plain, associated []byte) (string, error)
	Open(sealed string, associated []byte) ([]byte, error)
}

// Vault opens the credentials of instances, by name; those that cannot be opened are missing.
type Vault interface {
	Open(sealed ...store.Secret) map[string]json.RawMessage
}

// Offers tells what the catalog says about the bindings of a plan.
type Offers interface {
	IsBindable(planID string) bool
	IsBindingRotatable(planID string) bool
}

// Deps are what a Service needs.
type Deps struct {
	Store  *store.Store
	Asker  Asker
	Sealer Sealer
	Vault  Vault
	Offers Offers
	Log    *slog.Logger
	Now    func() time.Time
}

// Service is safe for concurrent use, also by several processes on one database.
type Service struct {
	cfg  Config
	deps Deps
}

// New makes a service; Run makes it clean up.
func New(cfg Config, deps Deps) *Service { return &Service{cfg: cfg, deps: deps} }

// margin is how much longer a claim lasts than the work under it may take.
const margin = 5 * time.Second

// claim makes b's claim that of the caller, from now on.
func (s *Service) claim(b *store.Binding, id string, now time.Time) {
	b.Claim, b.ClaimedUntil = id, now.Add(s.cfg.Timeout+margin)
	b.DueAt = b.ClaimedUntil.Add(s.cfg.Grace)
}

// release gives a claim back, also when ctx has ended. A claim that cannot be given back ends by itself.
func (s *Service) release(ctx context.Context, b *store.Binding, due time.Time) {
	if err := s.deps.Store.ReleaseBinding(context.WithoutCancel(ctx), b, s.deps.Now(), due); err != nil {
		s.deps.Log.Warn("claim of a binding not released", "instance_id", b.InstanceID, "binding_id", b.ID, "err", err)
	}
}

var errNoRuntime = errors.New("no runtime of the instance is known")

// access says where a binding's access is. For an own cluster that takes the customer's kubeconfig.
func (s *Service) access(ctx context.Context, b *store.Binding) (event.RuntimeAccess, error) {
	at := event.RuntimeAccess{InstanceID: b.InstanceID, Account: b.Account, RuntimeID: b.RuntimeID}
	// The subaccount may have been moved since.
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

// Owner binds a sealed kubeconfig to its binding, whose id is the name, and to its revision: that of an earlier binding with the same id
// does not open. Ids hold no NUL, and no credentials of an instance have such an owner.
func Owner(s store.Secret) []byte {
	owner := "binding\x00" + s.InstanceID + "\x00" + s.Name
	if s.Revision != "" {
		owner += "\x00" + s.Revision
	}
	return []byte(owner)
}

func ownerOf(b *store.Binding) []byte {
	return Owner(store.Secret{InstanceID: b.InstanceID, Name: b.ID, Revision: b.Revision})
}

func (s *Service) seal(b *store.Binding, kubeconfig string) error {
	b.Revision = rand.Text()
	sealed, err := s.deps.Sealer.Seal([]byte(kubeconfig), ownerOf(b))
	if err != nil {
		return fmt.Errorf("seal kubeconfig: %w", err)
	}
	b.Sealed = sealed
	return nil
}

// Made is a binding whose access is made.
type Made struct {
	// Kubeconfig is a secret.
	Kubeconfig string
	Expiration time.Duration
	ExpiresAt  time.Time
	// RenewBefore is when the next one should be there.
	RenewBefore time.Time
}

// open decrypts a binding's kubeconfig.
func (s *Service) open(b *store.Binding) (*Made, error) {
	plain, err := s.deps.Sealer.Open(b.Sealed, ownerOf(b))
	if err != nil {
		return nil, fmt.Errorf("open kubeconfig of binding %q of instance %q: %w", b.ID, b.InstanceID, err)
	}
	// The last fifth of its life is for the change to the next one.
	return &Made{
		Kubeconfig: string(plain), Expiration: b.Expiration, ExpiresAt: b.ExpiresAt, RenewBefore: b.ExpiresAt.Add(-b.Expiration / 5),
	}, nil
}
