package worker_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
)

func TestVectors_Commands_AreRead(t *testing.T) {
	t.Parallel()
	type in struct {
		Headers nats.Header
		Body    string
	}
	unreadable := map[string]any{"unreadable": true}
	testkit.Vectors(t, "commands.json", func(in in) map[string]any {
		e, err := bus.Decode(in.Headers, []byte(in.Body))
		if err != nil {
			return unreadable
		}
		c, err := worker.ReadCommand(e)
		if err != nil {
			return unreadable
		}
		out := map[string]any{
			"commandId":  event.CommandID(c.Operation.ID, c.Cursor),
			"dispatchId": event.DispatchID(c.Operation.ID, c.Cursor, c.Dispatch),
			"step":       c.Step, "executeBefore": c.ExecuteBefore, "stageMemory": c.StageMemory, "traceparent": bus.TraceOf(e),
		}
		if c.Event != nil {
			out["event"] = c.Event
		}
		return out
	})
}

type resultIn struct {
	Worker  event.Worker
	Command struct {
		OperationID, Stage, Step, Traceparent string
		Cursor                                int64
		Dispatch                              int
	}
	Outcome               event.Outcome
	Message               string
	Details               json.RawMessage
	StageMemory           bool
	Removed               []string
	RetryAfter            float64
	Error                 *event.Error
	Event                 *event.AwaitedEvent
	StartedAt, FinishedAt time.Time
}

type resultOut struct {
	Subject string            `json:"subject"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

func (in *resultIn) result() *worker.Result {
	c := &in.Command
	return &worker.Result{
		Outcome: in.Outcome, RetryAfter: time.Duration(in.RetryAfter * float64(time.Second)), Event: in.Event, Error: in.Error,
		Result: event.Result{
			OperationID: c.OperationID, Cursor: c.Cursor, Stage: c.Stage, Step: c.Step, Worker: in.Worker, Message: in.Message,
			Details: in.Details, StageMemory: in.StageMemory, Removed: in.Removed, StartedAt: in.StartedAt, FinishedAt: in.FinishedAt,
		},
	}
}

func TestVectors_Results_AreWritten(t *testing.T) {
	t.Parallel()
	testkit.Vectors(t, "results.json", func(in resultIn) resultOut {
		c := &in.Command
		command := event.StepExecute{Operation: event.Operation{ID: c.OperationID}, Stage: c.Stage, Step: c.Step, Cursor: c.Cursor, Dispatch: c.Dispatch}
		m, err := worker.Message(in.Worker.Name, command, in.result(), c.Traceparent)
		require.NoError(t, err)
		h, body, err := bus.Encode(&m.Event)
		require.NoError(t, err)
		out := resultOut{Subject: m.Subject, Headers: map[string]string{jetstream.MsgIDHeader: m.ID}, Body: string(body)}
		for name, values := range h {
			out.Headers[name] = values[0]
		}
		return out
	})
}

func TestVectors_Messages_AreWrittenAndRead(t *testing.T) {
	t.Parallel()
	types := map[string]func() any{
		"CancelNotice": func() any { return new(event.CancelNotice) }, "CurrentRequest": func() any { return new(event.CurrentRequest) },
		"ExtendRequest": func() any { return new(event.ExtendRequest) }, "ExtendAnswer": func() any { return new(event.ExtendAnswer) },
		"ProgressNotice": func() any { return new(event.ProgressNotice) },
		"CurrentAnswer":  func() any { return new(event.CurrentAnswer) }, "CredentialsRequest": func() any { return new(event.CredentialsRequest) },
		"CredentialsAnswer": func() any { return new(event.CredentialsAnswer) }, "KeepRequest": func() any { return new(event.KeepRequest) },
		"KeepAnswer": func() any { return new(event.KeepAnswer) }, "KeptRequest": func() any { return new(event.KeptRequest) },
		"KeptAnswer": func() any { return new(event.KeptAnswer) }, "AskError": func() any { return new(event.AskError) },
		"Overrides": func() any { return new(worker.StoredOverrides) }, "Pong": func() any { return new(worker.Pong) },
		"Taken": func() any { return new(worker.Taken) },
	}
	type in struct {
		Type  string
		Value json.RawMessage
	}
	testkit.Vectors(t, "messages.json", func(in in) string {
		value, read := types[in.Type](), types[in.Type]()
		require.NoError(t, json.Unmarshal(in.Value, value))
		body, err := json.Marshal(value)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(body, read))
		require.Equal(t, value, read)
		return string(body)
	})
}

func TestVectors_Names_AreMade(t *testing.T) {
	t.Parallel()
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		require.NoError(t, err)
		return n
	}
	functions := map[string]func(a []string) any{
		"commandSubject": func(a []string) any { return event.CommandSubject(a[0], a[1]) },
		"resultSubject":  func(a []string) any { return event.ResultSubject(a[0], a[1]) },
		"deadSubject":    func([]string) any { return event.DeadSubject(event.StreamCommands) },
		"cancelSubject":  func(a []string) any { return event.CancelSubject(a[0]) },
		"pingSubject":    func(a []string) any { return worker.PingSubject(a[0]) },
		"currentSubject": func(a []string) any { return event.AskCurrentAs(a[0]) },
		"extendSubject":  func(a []string) any { return event.AskExtendAs(a[0]) },
		"credentialsSubject": func(a []string) any {
			return event.AskCredentialsAs(a[0])
		},
		"keepSubject":    func(a []string) any { return event.AskKeepAs(a[0]) },
		"keptSubject":    func(a []string) any { return event.AskKeptAs(a[0]) },
		"signalSubject":  func(a []string) any { return event.SignalSubject(a[0]) },
		"commandId":      func(a []string) any { return event.CommandID(a[0], number(a[1])) },
		"dispatchId":     func(a []string) any { return event.DispatchID(a[0], number(a[1]), int(number(a[2]))) },
		"source":         func(a []string) any { return event.WorkerSource(a[0]) },
		"user":           func(a []string) any { return event.WorkerUserName(a[0]) },
		"inboxPrefix":    func(a []string) any { return event.InboxPrefix(a[0]) },
		"service":        func(a []string) any { return worker.ServicePrefix + a[0] },
		"serviceVersion": func(a []string) any { return worker.ServiceVersion(a[0]) },
		"isWorker":       func(a []string) any { return worker.CheckName(a[0]) == nil },
		"isStep": func(a []string) any {
			return worker.CheckStep(worker.NewStep(a[0], "", nil, worker.Description{})) == nil
		},
		"isEventKey": func(a []string) any { return event.AwaitedEvent{Key: a[0]}.Validate() == nil },
	}
	type in struct {
		Function  string
		Arguments []string
	}
	testkit.Vectors(t, "names.json", func(in in) any { return functions[in.Function](in.Arguments) })
}

func TestVectors_Overrides_AreMerged(t *testing.T) {
	t.Parallel()
	type overrides struct {
		Component string            `json:"component"`
		Entries   []worker.Override `json:"entries"`
	}
	type in struct {
		Step   string
		Stored map[string]string
		Own    []overrides
	}
	testkit.Vectors(t, "overrides.json", func(in in) []overrides {
		merged := []overrides{}
		run := runOf(in.Step, func(ctx context.Context, op worker.Operation) error {
			for _, o := range in.Own {
				op.SetOverrides(o.Component, o.Entries)
			}
			all, err := op.Overrides(ctx)
			for _, o := range all {
				merged = append(merged, overrides(o))
			}
			return err
		})
		r := worker.Execute(t.Context(), run, worker.Execution{Command: vectorCommand(in.Step), Memory: vectorMemory(in.Stored)})
		require.Equal(t, event.OutcomeSucceeded, r.Outcome, "%v", r.Error)
		return merged
	})
}

func TestVectors_Details_AreMerged(t *testing.T) {
	t.Parallel()
	type in struct {
		Saved json.RawMessage
		Patch map[string]json.RawMessage
	}
	testkit.Vectors(t, "details.json", func(in in) json.RawMessage {
		merged, err := worker.MergeDetails(in.Saved, in.Patch)
		require.NoError(t, err)
		return merged
	})
}

func TestVectors_Errors_AreShortenedAndMasked(t *testing.T) {
	t.Parallel()
	type in struct {
		Credentials json.RawMessage
		Error       event.Error
	}
	testkit.Vectors(t, "errors.json", func(in in) *event.Error {
		fail := runOf("Hello_World", func(ctx context.Context, op worker.Operation) error {
			if in.Credentials != nil {
				var into any
				require.NoError(t, op.ClaimCredentials(ctx, "some", &into))
			}
			return &worker.Error{Component: in.Error.Component, Reason: in.Error.Reason, Message: in.Error.Message}
		})
		command := vectorCommand("Hello_World")
		command.Operation.Credentials = []string{"some"}
		return worker.Execute(t.Context(), fail, worker.Execution{
			Command: command, Worker: event.Worker{Name: "test"},
			Claim: func(context.Context, event.CredentialsRequest) (json.RawMessage, error) {
				return in.Credentials, nil
			},
		}).Error
	})
}

func vectorCommand(step string) event.StepExecute {
	return event.StepExecute{Step: step, Cursor: 100, ExecuteBefore: time.Now().Add(time.Minute)}
}

// runOf returns a step of a function whose error fails it.
func runOf(name string, run func(ctx context.Context, op worker.Operation) error) worker.Step {
	return vectorStep{name: name, run: run}
}

type vectorStep struct {
	name string
	run  func(ctx context.Context, op worker.Operation) error
}

func (s vectorStep) Name() string { return s.name }

func (s vectorStep) Run(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	return op, 0, s.run(ctx, op)
}

// vectorMemory is a stage memory that is only read.
type vectorMemory map[string]string

func (vectorMemory) Put(context.Context, string, []byte) error { return nil }

func (m vectorMemory) Get(_ context.Context, key string) ([]byte, error) { return []byte(m[key]), nil }

func (m vectorMemory) List(_ context.Context, prefix string) (map[string][]byte, error) {
	all := map[string][]byte{}
	for key, value := range m {
		if strings.HasPrefix(key, prefix) {
			all[key] = []byte(value)
		}
	}
	return all, nil
}

func (vectorMemory) Check(context.Context) error { return nil }

func TestVectors_Settings_AreRead(t *testing.T) {
	t.Parallel()
	type out struct {
		Concurrency       *int     `json:"concurrency,omitempty"`
		RateLimit         *float64 `json:"rateLimit,omitempty"`
		DrainMilliseconds *int64   `json:"drainMilliseconds,omitempty"`
		Ramped            *bool    `json:"ramped,omitempty"`
		Error             bool     `json:"error,omitempty"`
	}
	testkit.Vectors(t, "settings.json", func(in map[string]string) out {
		var limits worker.Limits
		if service.LoadEnvFrom(&limits, in, nil) != nil || limits.Config(workerName, "").Validate() != nil {
			return out{Error: true}
		}
		c := worker.WithDefaults(limits.Config(workerName, ""))
		drain := c.DrainTimeout.Milliseconds()
		return out{Concurrency: &c.Concurrency, RateLimit: &c.RateLimit, DrainMilliseconds: &drain, Ramped: &c.Ramped}
	})
}
