package credential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Claims answers the claims of workers for credentials. A worker gets the credentials of an operation only while it has a command
// of one of its steps. The broker asks the orchestrator for that.
type Claims struct {
	vault *Vault
	bus   *bus.Bus
	log   *slog.Logger
	// logLimit limits the number of log lines that workers can cause.
	logLimit rate.Sometimes
}

// Of the refused claims, the first logFirst are logged, and then one per logInterval.
const (
	logFirst    = 20
	logInterval = 10 * time.Second
)

// NewClaims creates a Claims.
func NewClaims(vault *Vault, b *bus.Bus, log *slog.Logger) *Claims {
	return &Claims{vault: vault, bus: b, log: log, logLimit: rate.Sometimes{First: logFirst, Interval: logInterval}}
}

// Answer answers a claim on event.AskCredentialsAs. The bus allows a worker only the subject with its own name.
func (c *Claims) Answer(ctx context.Context, subject string, question []byte) (any, error) {
	var q event.CredentialsRequest
	// For a question that cannot be decoded, the vault returns the error.
	if err := json.Unmarshal(question, &q); err != nil || q.OperationID == "" {
		return c.vault.Answer(ctx, question)
	}
	if len(q.Name) > osb.MaxIDLength {
		return nil, fmt.Errorf("name: is longer than %d bytes", osb.MaxIDLength)
	}
	if err := c.admit(ctx, strings.TrimPrefix(subject, event.AskCredentials+"."), q.InstanceID, q.OperationID, errRefused, errLater); err != nil {
		return nil, err
	}
	if err := c.settled(ctx, q); err != nil {
		return nil, err
	}
	return c.vault.Answer(ctx, question)
}

// settled returns errLater if an earlier update has replaced the claimed credentials and the broker has not recorded its success yet: the
// broker would answer with the old ones. It ignores a failed update that an operator retries: it waits for the operation of the claim.
func (c *Claims) settled(ctx context.Context, q event.CredentialsRequest) error {
	log := c.log.With("operation_id", q.OperationID, "instance_id", q.InstanceID)
	earlier, err := c.vault.store.EarlierUpdate(ctx, q.InstanceID, q.OperationID, q.Name)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	var answer event.OperationsAnswer
	if err == nil {
		err = c.bus.Ask(ctx, event.AskOperations, event.OperationsRequest{IDs: []string{earlier}}, &answer)
	}
	if err != nil {
		c.logLimit.Do(func() { log.Warn("claim not checked", "err", err) })
		return errLater
	}
	for i := range answer.Operations {
		if o := &answer.Operations[i]; o.OperationID == earlier && o.State == event.Succeeded {
			c.logLimit.Do(func() { log.Warn("claim delayed: the success of an update is not recorded yet", "update", earlier) })
			return errLater
		}
	}
	return nil
}

// AnswerKeep answers event.AskKeepAs: it replaces the value that is kept for the worker.
func (c *Claims) AnswerKeep(ctx context.Context, subject string, question []byte) (any, error) {
	var q event.KeepRequest
	if json.Unmarshal(question, &q) != nil || len(q.Value) == 0 {
		return nil, errors.New("the question must be a JSON object with instanceId, operationId and value")
	}
	if len(q.Value) > event.MaxKept {
		return nil, fmt.Errorf("value: has %d bytes, at most %d are allowed", len(q.Value), event.MaxKept)
	}
	worker := strings.TrimPrefix(subject, event.AskKeep+".")
	if err := c.admit(ctx, worker, q.InstanceID, q.OperationID, errKeptRefused, errKeptLater); err != nil {
		return nil, err
	}
	if err := c.vault.keep(ctx, worker, q); err != nil {
		return nil, err
	}
	return event.KeepAnswer{}, nil
}

// AnswerKept answers event.AskKeptAs with the value that is kept for the worker, unencrypted.
func (c *Claims) AnswerKept(ctx context.Context, subject string, question []byte) (any, error) {
	var q event.KeptRequest
	if json.Unmarshal(question, &q) != nil {
		return nil, errors.New("the question must be a JSON object with instanceId and operationId")
	}
	worker := strings.TrimPrefix(subject, event.AskKept+".")
	if err := c.admit(ctx, worker, q.InstanceID, q.OperationID, errKeptRefused, errKeptLater); err != nil {
		return nil, err
	}
	return c.vault.kept(ctx, worker, q)
}

// admit rejects a worker that has no command of the operation: with refused, or with later if that cannot be checked.
func (c *Claims) admit(ctx context.Context, worker, instanceID, operationID string, refused, later error) error {
	for field, value := range map[string]string{"instanceId": instanceID, "operationId": operationID} {
		switch {
		case value == "":
			return fmt.Errorf("%s: must not be empty", field)
		case len(value) > osb.MaxIDLength:
			return fmt.Errorf("%s: is longer than %d bytes", field, osb.MaxIDLength)
		}
	}
	log := c.log.With("operation_id", operationID, "instance_id", instanceID, "worker", worker)
	var answer event.OperationsAnswer
	if err := c.bus.Ask(ctx, event.AskOperations, event.OperationsRequest{IDs: []string{operationID}}, &answer); err != nil {
		c.logLimit.Do(func() { log.Warn("claim not checked", "err", err) })
		return later
	}
	for i := range answer.Operations {
		if o := &answer.Operations[i]; o.OperationID == operationID && o.Worker == worker {
			return nil
		}
	}
	c.logLimit.Do(func() { log.Warn("claim refused: the worker has no command of this operation") })
	return refused
}
