package workertest

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/worker"
)

// Memory is the stage memory of one attempt, in a map. It is safe for concurrent use.
type Memory struct {
	mu     sync.Mutex
	values map[string][]byte
}

var _ worker.Memory = (*Memory)(nil)

// NewMemory returns an empty memory.
func NewMemory() *Memory { return &Memory{values: map[string][]byte{}} }

// Put implements worker.Memory.
func (m *Memory) Put(_ context.Context, key string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[key] = value
	return nil
}

// Get implements worker.Memory.
func (m *Memory) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok := m.values[key]
	if !ok {
		return nil, worker.ErrNotRemembered
	}
	return value, nil
}

// List implements worker.Memory.
func (m *Memory) List(_ context.Context, prefix string) (map[string][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := maps.Clone(m.values)
	maps.DeleteFunc(found, func(key string, _ []byte) bool { return !strings.HasPrefix(key, prefix) })
	return found, nil
}

// Check implements worker.Memory.
func (m *Memory) Check(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.values) == 0 {
		return worker.ErrStageLost
	}
	return nil
}

// Values returns the stored entries by key.
func (m *Memory) Values() map[string][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.values)
}

// other represents the other steps of the stage: it fills and reads the memory.
type other func(ctx context.Context, op worker.Operation) error

func (other) Name() string { return "other-steps" }

func (o other) Run(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	return op, 0, o(ctx, op)
}

func (m *Memory) run(step other) error {
	r := worker.Execute(context.Background(), step, worker.Execution{
		Command: event.StepExecute{Step: step.Name(), ExecuteBefore: time.Now().Add(time.Minute)},
		Memory:  m,
	})
	if r.Outcome != event.OutcomeSucceeded {
		return errors.New(r.Error.Message)
	}
	return nil
}

func (m *Memory) seed(t testing.TB, op Operation) {
	t.Helper()
	err := m.run(func(_ context.Context, o worker.Operation) error {
		for key, value := range op.Remembered {
			o.Remember(key, value)
		}
		for _, c := range op.Overrides {
			o.SetOverrides(c.Component, c.Entries)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("workertest: %v", err)
	}
}

func (m *Memory) contents() ([]worker.ComponentOverrides, map[string][]byte, error) {
	remembered := map[string][]byte{}
	for name, value := range m.values {
		if key, ok := stagemem.ValueKey(name); ok {
			remembered[key] = value
		}
	}
	var overrides []worker.ComponentOverrides
	err := m.run(func(ctx context.Context, o worker.Operation) (err error) {
		overrides, err = o.Overrides(ctx)
		return err
	})
	return overrides, remembered, err
}
