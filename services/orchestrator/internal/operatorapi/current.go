package operatorapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

// Current answers event.AskCurrentAs. A redelivered command must be executed only if its result would still count. The bus allows a worker
// to publish only on the subject with its own name.
func (a *API) Current(ctx context.Context, subject string, data []byte) (any, error) {
	commands, err := parseCurrent(data)
	if err != nil {
		return nil, err
	}
	worker := strings.TrimPrefix(subject, event.AskCurrentAs(""))
	ids := make([]string, len(commands))
	for i, c := range commands {
		ids[i] = c.OperationID
	}
	rows, err := a.deps.Operations.Awaited(ctx, ids)
	if err != nil {
		a.deps.Log.Warn("question not answered", "err", err)
		return nil, errors.New("the operations cannot be read now")
	}
	awaited := make(map[event.CommandRef]*store.Row, len(rows))
	for _, row := range rows {
		p, err := a.deps.Definitions.Pinned(ctx, row.Definition)
		if err != nil {
			a.deps.Log.Warn("question not answered", "err", err)
			return nil, errors.New("a process definition cannot be read now")
		}
		if engine.Next(p, &row.State).Worker == worker {
			awaited[event.CommandRef{OperationID: row.Operation.ID, Cursor: row.AwaitedCursor()}] = row
		}
	}
	answer := event.CurrentAnswer{Current: []event.CommandRef{}}
	for _, c := range commands {
		row := awaited[c]
		if row == nil {
			continue
		}
		answer.Current = append(answer.Current, c)
		if row.Extended > 0 {
			answer.Extended = append(answer.Extended, event.Extended{CommandRef: c, Dispatch: row.Dispatch, ExecuteBefore: row.ExecuteBefore})
		}
	}
	return answer, nil
}

// Extend answers event.AskExtendAs: it gives a worker more time for a command that it executes. The bus allows a worker to publish only on the
// subject with its own name.
func (a *API) Extend(ctx context.Context, subject string, data []byte) (any, error) {
	var request event.ExtendRequest
	if err := json.Unmarshal(data, &request); err != nil {
		return nil, fmt.Errorf("the request must be a JSON object with operationId, cursor and seconds: %.300s", err.Error())
	}
	if err := request.Validate(); err != nil {
		return nil, err
	}
	worker := strings.TrimPrefix(subject, event.AskExtendAs(""))
	until, err := a.deps.Commands.Extend(ctx, worker, request.CommandRef, time.Duration(request.Seconds*float64(time.Second)))
	switch {
	case err == nil:
		return event.ExtendAnswer{ExecuteBefore: until}, nil
	case errors.Is(err, store.ErrNotFound):
		return nil, errors.New("no such operation")
	case errors.Is(err, engine.ErrNotPossible):
		return nil, fmt.Errorf("no more time: %w", err)
	}
	a.deps.Log.Warn("question not answered", "err", err)
	return nil, errors.New("the operation cannot be changed now")
}

// parseCurrent decodes a CurrentRequest.
func parseCurrent(data []byte) ([]event.CommandRef, error) {
	var request event.CurrentRequest
	if err := json.Unmarshal(data, &request); err != nil {
		return nil, fmt.Errorf("the request must be a JSON object with commands: %.300s", err.Error())
	}
	if err := request.Validate(); err != nil {
		return nil, err
	}
	for i, c := range request.Commands {
		if id, err := uuid.Parse(c.OperationID); err != nil || id.String() != c.OperationID {
			return nil, fmt.Errorf("commands[%d].operationId: is %.50q: want a UUID in lower case, as in the command", i, c.OperationID)
		}
	}
	return request.Commands, nil
}
