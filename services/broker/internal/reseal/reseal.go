// Package reseal seals what the broker keeps anew with the key that seals now,
// so that an older key can be dropped.
package reseal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/services/broker/internal/store"
)

// batch is how many sealed values are looked at in one question.
const batch = 500

// Keys opens with all keys, and seals with the first; see package seal.
type Keys interface {
	Seal(plain, associated []byte) (string, error)
	Open(sealed string, associated []byte) ([]byte, error)
	Stale(sealed string) bool
}

// Secrets is where the sealed values are.
type Secrets interface {
	Secrets(ctx context.Context, kind store.SecretKind, after store.Secret, limit int) ([]store.Secret, error)
	ReplaceSecret(ctx context.Context, kind store.SecretKind, old store.Secret, sealed string) error
}

// Owner is what a sealed value is bound to.
type Owner func(instanceID, name string) []byte

// Deps is what a Resealer works with. All but Registerer are required; Owners has one for each kind.
type Deps struct {
	Keys       Keys
	Secrets    Secrets
	Owners     map[store.SecretKind]Owner
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Resealer seals anew. Several may work at the same time.
type Resealer struct {
	deps  Deps
	stale prometheus.Gauge
}

// New makes a Resealer.
func New(deps Deps) (*Resealer, error) {
	r := &Resealer{deps: deps, stale: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "keb_broker_secrets_stale", Help: "Sealed values that the last round found sealed with an older key and could not seal anew.",
	})}
	if deps.Registerer != nil {
		if err := deps.Registerer.Register(r.stale); err != nil {
			return nil, fmt.Errorf("register metric: %w", err)
		}
	}
	return r, nil
}

// Round looks at every sealed value once. What cannot be opened stays as it is, is logged, and does not stop the round; a key
// that sealed it must be kept.
func (r *Resealer) Round(ctx context.Context) error {
	sealed, stuck := 0, 0
	for _, kind := range store.SecretKinds() {
		after := store.Secret{}
		for {
			found, err := r.deps.Secrets.Secrets(ctx, kind, after, batch)
			if err != nil {
				return err
			}
			for _, s := range found {
				if !r.deps.Keys.Stale(s.Sealed) {
					continue
				}
				if err := r.one(ctx, kind, s); err != nil {
					if ctx.Err() != nil || errors.Is(err, store.ErrUnavailable) {
						return err
					}
					stuck++
					r.deps.Log.Error("secret not sealed anew", "kind", string(kind), "instance_id", s.InstanceID, "err", err)
					continue
				}
				sealed++
			}
			if len(found) < batch {
				break
			}
			after = found[len(found)-1]
		}
	}
	r.stale.Set(float64(stuck))
	if sealed > 0 || stuck > 0 {
		r.deps.Log.Info("secrets sealed anew", "sealed", sealed, "not_sealed", stuck)
	}
	return nil
}

func (r *Resealer) one(ctx context.Context, kind store.SecretKind, s store.Secret) error {
	owner := r.deps.Owners[kind](s.InstanceID, s.Name)
	plain, err := r.deps.Keys.Open(s.Sealed, owner)
	if err != nil {
		return err
	}
	fresh, err := r.deps.Keys.Seal(plain, owner)
	if err != nil {
		return err
	}
	return r.deps.Secrets.ReplaceSecret(ctx, kind, s, fresh)
}
