package credential

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
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
	// seldom bounds the log of what any worker can cause.
	seldom rate.Sometimes
}

// logAtFirst and logInterval bound what is logged of claims that are refused: the first few, and then one in a while.
const (
	logAtFirst  = 20
	logInterval = 10 * time.Second
)

// NewClaims makes what answers claims.
func NewClaims(vault *Vault, asker Asker, log *slog.Logger) *Claims {
	return &Claims{vault: vault, asker: asker, log: log, seldom: rate.Sometimes{First: logAtFirst, Interval: logInterval}}
}

// Answer answers a claim on event.AskCredentialsAs. The bus lets a worker ask on the subject with its own name only.
func (c *Claims) Answer(ctx context.Context, subject string, question []byte) (any, error) {
	var q event.CredentialsRequest
	// The vault says what is wrong with a question that cannot be read.
	if err := json.Unmarshal(question, &q); err != nil || q.OperationID == "" {
		return c.vault.Answer(ctx, question)
	}
	for _, f := range []struct{ field, value string }{{"instanceId", q.InstanceID}, {"operationId", q.OperationID}, {"name", q.Name}} {
		if len(f.value) > osb.MaxIDLength {
			return nil, fmt.Errorf("%s: is longer than %d bytes", f.field, osb.MaxIDLength)
		}
	}
	worker := strings.TrimPrefix(subject, event.AskCredentials+".")
	log := c.log.With("operation_id", q.OperationID, "instance_id", q.InstanceID, "name", q.Name, "worker", worker)
	var answer event.OperationsAnswer
	if err := c.asker.Ask(ctx, event.AskOperations, event.OperationsRequest{IDs: []string{q.OperationID}}, &answer); err != nil {
		c.seldom.Do(func() { log.Warn("credentials claim not checked", "err", err) })
		return nil, errLater
	}
	for i := range answer.Operations {
		if o := &answer.Operations[i]; o.OperationID == q.OperationID && o.Worker == worker {
			return c.vault.Answer(ctx, question)
		}
	}
	c.seldom.Do(func() { log.Warn("credentials claim refused: the worker has no command of this operation") })
	return nil, errRefused
}
