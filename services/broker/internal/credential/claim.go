package credential

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"

	"github.com/kyma-project/keb/libs/event"
)

// Asker asks questions over the bus.
type Asker interface {
	Ask(ctx context.Context, subject string, request, answer any) error
}

// Claims answers workers that claim credentials. A worker gets those of an operation only while it has the command of one of its
// steps, which the orchestrator knows.
type Claims struct {
	vault *Vault
	asker Asker
	log   *slog.Logger
}

// NewClaims makes what answers claims.
func NewClaims(vault *Vault, asker Asker, log *slog.Logger) *Claims {
	return &Claims{vault: vault, asker: asker, log: log}
}

// Answer answers a claim on event.AskCredentialsAs. The bus lets a worker ask on the subject with its own name only.
func (c *Claims) Answer(ctx context.Context, subject string, question []byte) (any, error) {
	var q event.CredentialsRequest
	// The vault says what is wrong with a question that cannot be read.
	if err := json.Unmarshal(question, &q); err != nil || q.OperationID == "" {
		return c.vault.Answer(ctx, question)
	}
	worker := strings.TrimPrefix(subject, event.AskCredentials+".")
	log := c.log.With("operation_id", q.OperationID, "instance_id", q.InstanceID, "name", q.Name, "worker", worker)
	var answer event.OperationsAnswer
	if err := c.asker.Ask(ctx, event.AskOperations, event.OperationsRequest{IDs: []string{q.OperationID}}, &answer); err != nil {
		log.Warn("credentials claim not checked", "err", err)
		return nil, errLater
	}
	for i := range answer.Operations {
		if o := &answer.Operations[i]; o.OperationID == q.OperationID && o.Worker == worker {
			return c.vault.Answer(ctx, question)
		}
	}
	log.Warn("credentials claim refused: the worker has no command of this operation")
	return nil, errRefused
}
