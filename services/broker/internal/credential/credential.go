// Package credential seals the credentials of instances, and hands them to the
// workers that claim them.
package credential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Sealer encrypts with authentication; see package seal.
type Sealer interface {
	Seal(plain, associated []byte) (string, error)
	Open(sealed string, associated []byte) ([]byte, error)
}

// Source is where sealed credentials are kept.
type Source interface {
	Credentials(ctx context.Context, instanceID, operationID, name string) (string, error)
}

// Vault seals and opens credentials, each bound to its instance and name.
type Vault struct {
	sealer Sealer
	source Source
	log    *slog.Logger
}

// New makes a vault.
func New(sealer Sealer, source Source, log *slog.Logger) *Vault {
	return &Vault{sealer: sealer, source: source, log: log}
}

// Owner binds a sealed value to its place. An instance id holds no NUL (osb.ProvisionRequest).
func Owner(instanceID, name string) []byte { return []byte(instanceID + "\x00" + name) }

// Seal encrypts the credentials of an instance, by name.
func (v *Vault) Seal(instanceID string, plain map[string]json.RawMessage) (map[string]string, error) {
	sealed := make(map[string]string, len(plain))
	for name, value := range plain {
		s, err := v.sealer.Seal(value, Owner(instanceID, name))
		if err != nil {
			return nil, fmt.Errorf("seal credentials %s: %w", name, err)
		}
		sealed[name] = s
	}
	return sealed, nil
}

// Open decrypts the credentials of an instance, by name. What cannot be opened is missing, and an operator learns of it.
func (v *Vault) Open(instanceID string, sealed map[string]string) map[string]json.RawMessage {
	plain := make(map[string]json.RawMessage, len(sealed))
	for name, value := range sealed {
		opened, err := v.sealer.Open(value, Owner(instanceID, name))
		if err != nil {
			v.log.Error("credentials not opened", "instance_id", instanceID, "name", name, "err", err)
			continue
		}
		plain[name] = opened
	}
	return plain
}

// The refusals of Answer; they say nothing about what exists.
var (
	errRefused = errors.New("no such credentials for an unfinished operation of this instance")
	errLater   = errors.New("credentials cannot be read at present, ask again")
	errBroken  = errors.New("credentials cannot be opened; an operator has to look into the broker's log")
)

// Answer answers event.AskCredentials: the credentials in the clear, for an unfinished operation of the instance only.
func (v *Vault) Answer(ctx context.Context, question []byte) (any, error) {
	var q event.CredentialsRequest
	if err := json.Unmarshal(question, &q); err != nil {
		return nil, errors.New("the question must be a JSON object with instanceId, operationId and name")
	}
	if q.InstanceID == "" || q.OperationID == "" || q.Name == "" {
		return nil, errors.New("instanceId, operationId and name must not be empty")
	}
	log := v.log.With("instance_id", q.InstanceID, "operation_id", q.OperationID, "name", q.Name)
	sealed, err := v.source.Credentials(ctx, q.InstanceID, q.OperationID, q.Name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		log.Warn("credentials claim refused")
		return nil, errRefused
	case err != nil:
		log.Warn("credentials not read", "err", err)
		return nil, errLater
	}
	plain, err := v.sealer.Open(sealed, Owner(q.InstanceID, q.Name))
	if err != nil {
		log.Error("credentials not opened", "err", err)
		return nil, errBroken
	}
	log.Info("credentials claimed")
	return event.CredentialsAnswer{Credentials: plain}, nil
}
