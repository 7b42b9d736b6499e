// Package workertest runs a step in a test as a worker runs it, without a server: the operation, the stage memory and
// the credentials are kept in memory.
//
//	result := workertest.Run(t, step, workertest.Operation{Details: map[string]any{"avs": map[string]any{"id": 7}}})
//	if result.Outcome != event.OutcomeSucceeded { ... }
//
// [Result.Then] returns the operation after the step, to run the same step twice or the next step of the stage.
package workertest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// Operation describes the operation of a step. The zero value is a first provisioning attempt without
// details and parameters.
type Operation struct {
	// ID and InstanceID default to fixed UUIDs, Type to provision, Stage to "create_runtime".
	ID         string
	InstanceID string
	Type       event.OperationType
	Stage      string
	Plan       event.Plan
	Context    event.Context
	Runtime    event.Runtime
	// Parameters and each worker's Details must encode to a JSON object; nil means none.
	Parameters any
	Details    map[string]any
	// Credentials holds the results of ClaimCredentials, by name.
	Credentials map[string]any
	// Neighbours is the number of other instances in the subaccount.
	Neighbours int
	// Kept holds the kept values of the instance, by worker. Run changes it even if the step fails, because Keep does not
	// depend on the result.
	Kept map[string]json.RawMessage
	// Temporary, Purpose, UserAgent, Update and Upgrade are the fields of event.Operation.
	Temporary bool
	Purpose   event.Purpose
	UserAgent string
	Update    *event.Changes
	Upgrade   *event.Upgrade

	// Worker is the name of the worker that runs the step, under which SaveDetails saves; empty means "test".
	Worker string
	// StageAttempt and StepAttempt default to 1.
	StageAttempt int
	StepAttempt  int
	// Event is the event that the step has waited for; nil if none has come.
	Event *event.Signal
	// Now is the time at the start of the step; zero means the real time.
	Now time.Time
	// FirstTried is the time since the first try of the step.
	FirstTried time.Duration
	// Limit is the time limit of the step; zero means one minute.
	Limit time.Duration
	// Budget is the time after the start of the step up to which ExtendExecution extends the limit; zero means 24 hours.
	Budget time.Duration

	// Overrides and Remembered are the entries of earlier steps in the stage memory.
	Overrides  []worker.ComponentOverrides
	Remembered map[string][]byte
	// LostMemory runs the step as if the stage memory was used and lost.
	LostMemory bool

	// carried is the stage memory of a Result.
	carried map[string][]byte
	// cursor is the cursor of the operation. Result.Then increments it.
	cursor int64
}

// Result is the result of the step.
type Result struct {
	// Outcome, RetryAfter, Message and Error are the result that the orchestrator receives.
	Outcome    event.Outcome
	RetryAfter time.Duration
	Message    string
	// EventKey is the key of the event that the step waits for; empty for none.
	EventKey string
	// Progress are the reports of the step, in their order. A worker sends at most one per second.
	Progress []event.ProgressNotice
	// Extensions are the times for which the step has called ExtendExecution, in their order.
	Extensions []time.Duration
	// Error is nil unless the step returned an error.
	Error *event.Error
	// Removed are the objects of NoteRemoved.
	Removed []string
	// Details is the patch of the worker's own details; nil if the step saved none.
	Details map[string]any
	// Overrides and Remembered are all entries of the stage memory after the step.
	Overrides  []worker.ComponentOverrides
	Remembered map[string][]byte

	operation Operation
	patch     json.RawMessage
	memory    map[string][]byte
}

// Run runs the step once and returns its result. A step that violates the contract, for example with an invalid name,
// fails the test. Every outcome of a step, including a panic, is a Result. The step's logs go to the test's log.
func Run(t testing.TB, step worker.Step, op Operation) Result {
	t.Helper()
	if err := worker.CheckStep(step); err != nil {
		t.Fatalf("workertest: %v", err)
	}
	op = op.withDefaults()
	memory := NewMemory()
	if !op.LostMemory {
		maps.Copy(memory.values, op.carried)
		memory.seed(t, op)
	}
	command, err := op.command(step.Name(), len(memory.values) > 0)
	if err != nil {
		t.Fatalf("workertest: %v", err)
	}
	start := time.Now()
	reported := &reports{}
	now := func() time.Time { return op.Now.Add(time.Since(start)) }
	r := worker.Execute(t.Context(), step, worker.Execution{
		Command: command,
		Worker:  event.Worker{Name: op.Worker, Version: "test"},
		Memory:  memory,
		Claim:   op.claim,
		Keep: func(_ context.Context, request event.KeepRequest) error {
			op.Kept[op.Worker] = request.Value
			return nil
		},
		Kept:     func(context.Context, event.KeptRequest) (json.RawMessage, error) { return op.Kept[op.Worker], nil },
		Progress: reported.add,
		Extend: func(_ context.Context, request event.ExtendRequest) (time.Time, error) {
			by := time.Duration(request.Seconds * float64(time.Second))
			reported.extend(by)
			return op.extended(now(), by)
		},
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})).
			With("step", step.Name()),
		Now: now,
	})
	result := Result{
		Outcome: r.Outcome, RetryAfter: r.RetryAfter, Message: r.Message, Error: r.Error, Removed: r.Removed,
		Progress: reported.all(), Extensions: reported.extensions(), operation: op, patch: r.Details, memory: memory.values,
	}
	if r.Event != nil {
		result.EventKey = r.Event.Key
	}
	if len(r.Details) > 0 {
		if err := json.Unmarshal(r.Details, &result.Details); err != nil {
			t.Fatalf("workertest: details of the result: %v", err)
		}
	}
	if result.Overrides, result.Remembered, err = memory.contents(); err != nil {
		t.Fatalf("workertest: %v", err)
	}
	return result
}

// reports are what the goroutines of a step have reported and asked for.
type reports struct {
	mu       sync.Mutex
	sent     []event.ProgressNotice
	extended []time.Duration
}

func (r *reports) extend(by time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.extended = append(r.extended, by)
}

func (r *reports) extensions() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.extended)
}

// extended returns the time limit that the orchestrator grants at a time.
func (op *Operation) extended(now time.Time, by time.Duration) (time.Time, error) {
	limit, end := now.Add(by), op.Now.Add(op.Budget)
	if limit.Before(op.Now.Add(op.Limit)) {
		limit = op.Now.Add(op.Limit)
	}
	if limit.After(end) {
		if limit = end; !now.Before(end) {
			return time.Time{}, fmt.Errorf("no more time: the budget of the step ends at %s", end.UTC().Format(time.RFC3339))
		}
	}
	return limit, nil
}

func (r *reports) add(n event.ProgressNotice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, n)
}

func (r *reports) all() []event.ProgressNotice {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sent)
}

// Then returns the operation after the step for the next step of the stage, with the saved details and the stage
// memory. After a retry or a lost stage it returns the operation for the repeated stage, with the saved
// details, an empty stage memory, and incremented attempts.
func (r Result) Then() Operation {
	op := r.operation
	op.Details = maps.Clone(op.Details)
	if len(r.patch) > 0 {
		if op.Details == nil {
			op.Details = map[string]any{}
		}
		op.Details[op.Worker] = merged(op.Details[op.Worker], r.patch)
	}
	op.LostMemory = false
	op.cursor++
	if r.Outcome != event.OutcomeRetry && r.Outcome != event.OutcomeStageLost || r.EventKey != "" {
		op.Event = nil
	}
	op.Overrides, op.Remembered = nil, nil
	switch r.Outcome {
	case event.OutcomeRetry, event.OutcomeStageLost:
		op.carried = nil
		op.StageAttempt++
		op.StepAttempt++
		op.FirstTried += r.RetryAfter
		op.Now = op.Now.Add(r.RetryAfter)
	default:
		op.carried = r.memory
	}
	return op
}

// ThenEvent returns the operation after the step has waited for an event and the event has come, with data that encodes to JSON.
func (r Result) ThenEvent(t testing.TB, data any) Operation {
	t.Helper()
	if r.EventKey == "" {
		t.Fatal("workertest: the step does not wait for an event")
	}
	raw, err := json.Marshal(data)
	if err != nil {
		t.Fatalf("workertest: data of the event: %v", err)
	}
	r.RetryAfter = 0 // the event comes at once
	op := r.Then()
	op.Event = &event.Signal{Key: r.EventKey, Source: "/test", ID: "1", ReceivedAt: op.Now, Data: raw}
	return op
}

func (op Operation) withDefaults() Operation {
	def := func(s *string, value string) {
		if *s == "" {
			*s = value
		}
	}
	def(&op.ID, "0a1c6f2e-6c0e-4a9e-9c58-7d1f0f3a2b10")
	def(&op.InstanceID, "5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20")
	def((*string)(&op.Type), string(event.Provision))
	def(&op.Stage, "create_runtime")
	def(&op.Worker, "test")
	op.StageAttempt = max(op.StageAttempt, 1)
	op.StepAttempt = max(op.StepAttempt, 1)
	if op.Kept == nil {
		op.Kept = map[string]json.RawMessage{}
	}
	if op.Limit == 0 {
		op.Limit = time.Minute
	}
	if op.Budget == 0 {
		op.Budget = event.MaxExtension
	}
	if op.Now.IsZero() {
		op.Now = time.Now()
	}
	return op
}

func (op Operation) command(step string, used bool) (event.StepExecute, error) {
	c := event.StepExecute{
		Operation: event.Operation{
			ID: op.ID, Type: op.Type, InstanceID: op.InstanceID, Plan: op.Plan, Context: op.Context,
			Runtime: op.Runtime, Credentials: slices.Sorted(maps.Keys(op.Credentials)),
			Temporary: op.Temporary, Purpose: op.Purpose, UserAgent: op.UserAgent, Update: op.Update, Upgrade: op.Upgrade,
		},
		Stage: op.Stage, Step: step, Cursor: op.cursor + 1, Dispatch: 1,
		StageAttempt: op.StageAttempt, StepAttempt: op.StepAttempt,
		FirstTriedAt: op.Now.Add(-op.FirstTried), ExecuteBefore: op.Now.Add(op.Limit),
		StageMemory: used || op.LostMemory, Event: op.Event,
	}
	var err error
	if c.Operation.Parameters, err = object("Parameters", op.Parameters); err != nil {
		return c, err
	}
	for name, part := range op.Details {
		if _, err := object(fmt.Sprintf("Details[%q]", name), part); err != nil {
			return c, err
		}
	}
	if len(op.Details) > 0 {
		c.Details, err = json.Marshal(op.Details)
	}
	return c, err
}

func (op Operation) claim(_ context.Context, request event.CredentialsRequest) (json.RawMessage, error) {
	if request.Name == event.ClaimNeighbours {
		return json.Marshal(event.Neighbours{Count: op.Neighbours})
	}
	return json.Marshal(op.Credentials[request.Name])
}

func object(field string, value any) (json.RawMessage, error) {
	if value == nil {
		return nil, nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil || members == nil {
		return nil, fmt.Errorf("%s: %T does not encode to a JSON object", field, value)
	}
	return raw, nil
}

// merged returns a worker's details after the patch. The caller has checked that both are JSON objects.
func merged(part any, patch json.RawMessage) json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(patch, &members) != nil {
		return patch
	}
	raw, err := object("part", part)
	if err != nil {
		return patch
	}
	after, err := worker.MergeDetails(raw, members)
	if err != nil {
		return patch
	}
	return after
}
