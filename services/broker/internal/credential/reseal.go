package credential

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// batch is the number of sealed values in one query.
const batch = 500

// Resealer seals values of older keys anew with the current key. Several resealers can run concurrently.
type Resealer struct {
	keys  *seal.Keyring
	store *store.Store
	log   *slog.Logger
	left  prometheus.Gauge
}

// NewResealer creates a Resealer. It registers no metric with a nil registerer.
func NewResealer(keys *seal.Keyring, s *store.Store, log *slog.Logger, registerer prometheus.Registerer) (*Resealer, error) {
	r := &Resealer{keys: keys, store: s, log: log, left: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "keb_broker_secrets_stale", Help: "Sealed values that the last round found sealed with an older key, or bound to no revision, and could not seal anew.",
	})}
	if registerer != nil {
		if err := registerer.Register(r.left); err != nil {
			return nil, fmt.Errorf("register metric: %w", err)
		}
	}
	return r, nil
}

// Round checks every sealed value once. It skips values that it cannot open; the key that sealed them must be kept. It logs the first
// such value of each kind, and their number: a key that was removed too early affects many values.
func (r *Resealer) Round(ctx context.Context) error {
	sealed, stuck := 0, 0
	for _, kind := range store.SecretKinds() {
		s, n, err := r.kind(ctx, kind)
		if err != nil {
			return err
		}
		sealed, stuck = sealed+s, stuck+n
	}
	switch {
	case stuck > 0:
		r.log.Error("secrets cannot be sealed anew, keep the keys that have sealed them", "sealed", sealed, "not_sealed", stuck)
	case sealed > 0:
		r.log.Info("secrets sealed anew", "sealed", sealed)
	}
	r.left.Set(float64(stuck)) // set after the log, which explains a change
	return nil
}

// kind checks every sealed value of a kind.
func (r *Resealer) kind(ctx context.Context, kind store.SecretKind) (sealed, stuck int, err error) {
	after := store.Secret{}
	for {
		found, err := r.store.Secrets(ctx, kind, after, batch)
		if err != nil {
			return sealed, stuck, err
		}
		for _, s := range found {
			if !r.stale(kind, s) {
				continue
			}
			if err := r.one(ctx, kind, s); err != nil {
				if ctx.Err() != nil || errors.Is(err, store.ErrUnavailable) {
					return sealed, stuck, err
				}
				if stuck == 0 {
					r.log.Error("secret not sealed anew", "kind", string(kind), "instance_id", s.InstanceID, "name", s.Name, "err", err)
				}
				stuck++
				continue
			}
			sealed++
		}
		if len(found) < batch {
			return sealed, stuck, nil
		}
		after = found[len(found)-1]
	}
}

// stale reports whether a value must be sealed anew: an older key sealed it, or it is bound to no revision.
func (r *Resealer) stale(kind store.SecretKind, s store.Secret) bool {
	return r.keys.Stale(s.Sealed) || s.Revision == "" && revised(kind)
}

// revised reports whether values of a kind have their own revision. Those of an update share one, and are deleted with it.
func revised(kind store.SecretKind) bool { return kind != store.SecretUpdates }

func (r *Resealer) one(ctx context.Context, kind store.SecretKind, s store.Secret) error {
	s, err := r.store.Secret(ctx, kind, s)
	if errors.Is(err, store.ErrNotFound) {
		return nil // removed since it was listed
	}
	if err != nil {
		return err
	}
	plain, err := r.keys.Open(s.Sealed, Owner(kind, s))
	if err != nil {
		return err
	}
	fresh := s
	if fresh.Revision == "" && revised(kind) {
		fresh.Revision = rand.Text()
	}
	if fresh.Sealed, err = r.keys.Seal(plain, Owner(kind, fresh)); err != nil {
		return err
	}
	return r.store.ReplaceSecret(ctx, kind, s, fresh.Sealed, fresh.Revision)
}
