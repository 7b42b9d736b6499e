package event_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestValidate_InvalidMember_IsNamed(t *testing.T) {
	t.Parallel()
	for typ, payload := range testkit.Payloads() {
		if err := payload.(interface{ Validate() error }).Validate(); err != nil {
			t.Errorf("example of %s: %v", typ, err)
		}
	}
	ex := testkit.Payloads()
	with := func(typ event.Type, change func(p any) any) any { return change(ex[typ]) }
	for field, payload := range map[string]any{
		"operation.id": with(event.TypeOperationRequested, func(p any) any {
			r := p.(event.OperationRequested)
			r.Operation.ID = ""
			return r
		}),
		"operation.type": with(event.TypeOperationRequested, func(p any) any {
			r := p.(event.OperationRequested)
			r.Operation.Type = "destroy"
			return r
		}),
		"operation.parameters": with(event.TypeOperationRequested, func(p any) any {
			r := p.(event.OperationRequested)
			r.Operation.Parameters = json.RawMessage(`[]`)
			return r
		}),
		"commands":                event.CurrentRequest{Commands: make([]event.CommandRef, event.MaxCurrent+1)},
		"commands[0].operationId": event.CurrentRequest{Commands: []event.CommandRef{{OperationID: "a.b", Cursor: 1}}},
		"commands[1].cursor":      event.CurrentRequest{Commands: []event.CommandRef{{OperationID: "a", Cursor: 1}, {OperationID: "b"}}},
		"step": with(event.TypeStepExecute, func(p any) any {
			c := p.(event.StepExecute)
			c.Step = "two.words"
			return c
		}),
		"executeBefore": with(event.TypeStepExecute, func(p any) any {
			c := p.(event.StepExecute)
			c.ExecuteBefore = time.Time{}
			return c
		}),
		"cursor": with(event.TypeStepSucceeded, func(p any) any {
			r := p.(event.StepSucceeded)
			r.Cursor = 0
			return r
		}),
		"details": with(event.TypeStageLost, func(p any) any {
			r := p.(event.StageLost)
			r.Details = json.RawMessage(` "text"`)
			return r
		}),
		"worker.name": with(event.TypeStepSkipped, func(p any) any {
			r := p.(event.StepSkipped)
			r.Worker.Name = "a>b"
			return r
		}),
		"event.key": with(event.TypeStepRetry, func(p any) any {
			r := p.(event.StepRetry)
			r.Event = &event.AwaitedEvent{Key: "two..dots"}
			return r
		}),
		"key":    event.Signal{Key: "a.>", Source: "/s", ID: "1"},
		"source": event.Signal{Key: "a", Source: "\n", ID: "1"},
		"id":     event.Signal{Key: "a", Source: "/s"},
		"data":   event.Signal{Key: "a", Source: "/s", ID: "1", Data: json.RawMessage(`"\u0000"`)},
		"retryAfter": with(event.TypeStepRetry, func(p any) any {
			r := p.(event.StepRetry)
			r.RetryAfter = -1
			return r
		}),
		"error": with(event.TypeStepFailed, func(p any) any {
			r := p.(event.StepFailed)
			r.Error = event.Error{}
			return r
		}),
		"instanceId": with(event.TypeStepFinished, func(p any) any {
			f := p.(event.StepFinished)
			f.InstanceID = ""
			return f
		}),
	} {
		err := payload.(interface{ Validate() error }).Validate()
		if fe, ok := errors.AsType[*event.FieldError](err); !ok || fe.Field != field {
			t.Errorf("error is %v, want one about %s", err, field)
		}
	}
}
