package credential

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// keep seals a value of a worker with a new revision and stores it.
func (v *Vault) keep(ctx context.Context, worker string, q event.KeepRequest) error {
	log := v.log.With("instance_id", q.InstanceID, "operation_id", q.OperationID, "worker", worker)
	k := store.Secret{InstanceID: q.InstanceID, Name: worker, Revision: rand.Text()}
	var err error
	if k.Sealed, err = v.keys.Seal(q.Value, Owner(store.SecretKept, k)); err != nil {
		log.Error("value not sealed", "err", err)
		return errKeptUnsealed
	}
	err = v.store.Keep(ctx, q.OperationID, k)
	switch {
	case errors.Is(err, store.ErrNotFound):
		v.logLimit.Do(func() { log.Warn("keeping a value refused") })
		return errKeptRefused
	case err != nil:
		log.Warn("value not kept", "err", err)
		return errKeptLater
	}
	return nil
}

// kept returns the decrypted value that is kept for a worker. Without one the answer is empty.
func (v *Vault) kept(ctx context.Context, worker string, q event.KeptRequest) (event.KeptAnswer, error) {
	log := v.log.With("instance_id", q.InstanceID, "operation_id", q.OperationID, "worker", worker)
	sealed, err := v.store.Kept(ctx, q.InstanceID, q.OperationID, worker)
	switch {
	case errors.Is(err, store.ErrNotFound):
		v.logLimit.Do(func() { log.Warn("claim of a kept value refused") })
		return event.KeptAnswer{}, errKeptRefused
	case err != nil:
		log.Warn("kept value not read", "err", err)
		return event.KeptAnswer{}, errKeptLater
	case sealed.Sealed == "":
		return event.KeptAnswer{}, nil
	}
	plain, err := v.keys.Open(sealed.Sealed, Owner(store.SecretKept, sealed))
	if err != nil {
		log.Error("kept value not opened", "err", err)
		return event.KeptAnswer{}, errKeptBroken
	}
	return event.KeptAnswer{Value: plain}, nil
}
