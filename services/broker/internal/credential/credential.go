// Package credential seals the credentials of instances, answers the claims of workers for them, and seals values of older keys anew.
package credential

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/time/rate"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Vault seals and opens credentials. Each is bound to its instance, its name and its revision.
type Vault struct {
	keys  *seal.Keyring
	store *store.Store
	log   *slog.Logger
	// logLimit limits the logging of refused claims.
	logLimit rate.Sometimes
}

// New creates a vault.
func New(keys *seal.Keyring, s *store.Store, log *slog.Logger) *Vault {
	return &Vault{keys: keys, store: s, log: log, logLimit: rate.Sometimes{First: logFirst, Interval: logInterval}}
}

// Owner returns what a sealed value is bound to: its kind, its place and its revision. An older value of the same place does not open, nor
// does the kubeconfig of an earlier binding with the same id. Ids, names and revisions contain no NUL (osb.ProvisionRequest). A value that
// was sealed before revisions existed is bound to its place only. The new credentials of an update have the owner of credentials.
func Owner(kind store.SecretKind, s store.Secret) []byte {
	place := s.InstanceID + "\x00" + s.Name
	switch kind {
	case store.SecretKept:
		return []byte("kept\x00" + place + "\x00" + s.Revision)
	case store.SecretBindings:
		place = "binding\x00" + place
	default:
		if s.Revision != "" {
			place = "credentials\x00" + place
		}
	}
	if s.Revision != "" {
		place += "\x00" + s.Revision
	}
	return []byte(place)
}

// Seal encrypts the credentials of an instance, by name, with a new revision.
func (v *Vault) Seal(instanceID string, plain map[string]json.RawMessage) (store.Credentials, error) {
	c := store.Credentials{Revision: rand.Text(), Sealed: make(map[string]string, len(plain))}
	for name, value := range plain {
		s, err := v.keys.Seal(value, Owner(store.SecretCredentials, store.Secret{InstanceID: instanceID, Name: name, Revision: c.Revision}))
		if err != nil {
			return store.Credentials{}, fmt.Errorf("seal credentials %s: %w", name, err)
		}
		c.Sealed[name] = s
	}
	return c, nil
}

// Open decrypts credentials, by name. It omits credentials that it cannot decrypt, and logs an error for the operator.
func (v *Vault) Open(sealed ...store.Secret) map[string]json.RawMessage {
	plain := make(map[string]json.RawMessage, len(sealed))
	for _, s := range sealed {
		opened, err := v.keys.Open(s.Sealed, Owner(store.SecretCredentials, s))
		if err != nil {
			v.log.Error("credentials not opened", "instance_id", s.InstanceID, "name", s.Name, "err", err)
			continue
		}
		plain[s.Name] = opened
	}
	return plain
}

// The refusals of Answer. They do not reveal what exists.
var (
	errRefused = errors.New("nothing for this worker: it has no command of an unfinished operation of this instance, or there are no such credentials")
	errLater   = errors.New("credentials cannot be read at present, ask again")
	errBroken  = errors.New("credentials cannot be opened: see the broker's log")
)

// The refusals about kept values.
var (
	errKeptRefused  = errors.New("no kept value for this worker: it has no command of an unfinished operation of this instance")
	errKeptLater    = errors.New("kept values cannot be read or replaced at present, ask again")
	errKeptUnsealed = errors.New("the value cannot be sealed: see the broker's log")
	errKeptBroken   = errors.New(event.KeptBroken)
)

// Answer answers event.AskCredentials with the unencrypted credentials, for an unfinished operation of the instance only.
func (v *Vault) Answer(ctx context.Context, question []byte) (any, error) {
	var q event.CredentialsRequest
	if err := json.Unmarshal(question, &q); err != nil {
		return nil, errors.New("the question must be a JSON object with instanceId, operationId and name")
	}
	if q.InstanceID == "" || q.OperationID == "" || q.Name == "" {
		return nil, errors.New("instanceId, operationId and name must not be empty")
	}
	log := v.log.With("instance_id", q.InstanceID, "operation_id", q.OperationID, "name", q.Name)
	if q.Name == event.ClaimNeighbours {
		n, err := v.store.Neighbours(ctx, q.InstanceID, q.OperationID)
		if errors.Is(err, store.ErrNotFound) {
			return nil, errRefused
		}
		if err != nil {
			log.Warn("instances of a subaccount not counted", "err", err)
			return nil, errLater
		}
		plain, err := json.Marshal(event.Neighbours{Count: n})
		return event.CredentialsAnswer{Credentials: plain}, err
	}
	sealed, err := v.store.Credentials(ctx, q.InstanceID, q.OperationID, q.Name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		v.logLimit.Do(func() { log.Warn("credentials claim refused") })
		return nil, errRefused
	case err != nil:
		log.Warn("credentials not read", "err", err)
		return nil, errLater
	}
	plain, err := v.keys.Open(sealed.Sealed, Owner(store.SecretCredentials, sealed))
	if err != nil {
		log.Error("credentials not opened", "err", err)
		return nil, errBroken
	}
	log.Info("credentials claimed")
	return event.CredentialsAnswer{Credentials: plain}, nil
}
