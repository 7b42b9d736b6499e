package worker

import (
	"context"
	"errors"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/stagemem"
)

// stageMemory is the memory on the bus for the stage attempt of one command.
type stageMemory struct {
	memory *stagemem.Memory
	scope  stagemem.Scope
}

// memoryFor returns a nil interface if the worker has no stage memory.
func (w *Worker) memoryFor(c *event.StepExecute) Memory {
	if w.deps.StageMemory == nil {
		return nil
	}
	return stageMemory{memory: w.deps.StageMemory, scope: stagemem.Scope{
		OperationID: c.Operation.ID, Stage: c.Stage, StageAttempt: c.StageAttempt,
	}}
}

func (m stageMemory) Put(ctx context.Context, key string, value []byte) error {
	return m.memory.Put(ctx, m.scope, key, value)
}

func (m stageMemory) Get(ctx context.Context, key string) ([]byte, error) {
	value, err := m.memory.Get(ctx, m.scope, key)
	if errors.Is(err, stagemem.ErrNotFound) {
		return nil, ErrNotRemembered
	}
	return value, err
}

func (m stageMemory) List(ctx context.Context, prefix string) (map[string][]byte, error) {
	return m.memory.List(ctx, m.scope, prefix)
}

func (m stageMemory) Check(ctx context.Context) error {
	err := m.memory.Check(ctx, m.scope)
	if errors.Is(err, stagemem.ErrLost) {
		return ErrStageLost
	}
	return err
}
