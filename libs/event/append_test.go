package event_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

// FuzzAppendedPayloads compares the encoders without reflection with encoding/json.
func FuzzAppendedPayloads(f *testing.F) {
	const details = `{"avs":{"id":"1"}}`
	f.Add("6f7d1f7e-0000-4000-8000-000000000001", "create_runtime", "1.0.0", "", details, int64(17), 3, int64(1795316001), 250148972, true)
	f.Add(`"\<>&`, "ümlaut \u2028", "\x00\x7f", "\xff", "{\"<a>\" : \"&\u2028\\u003c\"}\n", int64(-1), 0, int64(-1), 0, false)
	f.Add("", "", "", "error", details, int64(1)<<62, -7, int64(253402300800), 999, true)
	f.Add("", "", "", "", "", int64(0), 0, int64(-62167219201), 1, true)
	f.Fuzz(func(t *testing.T, id, name, version, message, details string, cursor int64, attempt int, seconds int64, nanos int, set bool) {
		if details != "" && !json.Valid([]byte(details)) {
			return // such details do not occur: they come from Postgres and json.Marshal
		}
		at := time.Unix(seconds, int64(nanos))
		if set {
			at = at.UTC()
		}
		operation := event.Operation{ID: id, Type: event.Provision, InstanceID: name, Parameters: json.RawMessage(`{"a":1}`)}
		encoded, err := json.Marshal(operation)
		require.NoError(t, err)
		command := event.StepExecute{
			Operation: operation, Stage: name, Step: version, Cursor: cursor, Dispatch: attempt, StageAttempt: attempt + 1, StepAttempt: attempt,
			FirstTriedAt: at, ExecuteBefore: at.Add(time.Minute), StageMemory: set,
		}
		result := event.StepSucceeded{Result: event.Result{
			OperationID: id, Cursor: cursor, Stage: name, Step: name, Worker: event.Worker{Name: name, Version: version}, Message: message,
			StageMemory: set, StartedAt: at, FinishedAt: at.Add(time.Microsecond),
		}}
		if set {
			result.Removed = []string{name, message}
		}
		fact := event.Fact{OperationID: id, OperationType: event.OperationType(name), InstanceID: version, Cursor: cursor, OccurredAt: at}
		position := event.Position{Stage: name, Step: version, StageAttempt: attempt, StepAttempt: attempt + 2}
		finished := event.StepFinished{
			Fact: fact, Position: position, Worker: result.Worker, Outcome: event.Outcome(message), Message: message, StartedAt: at, FinishedAt: at,
		}
		command.Details, result.Details = json.RawMessage(details), json.RawMessage(details)
		if set {
			finished.Next, finished.RetryAt, finished.Event = &position, &at, &event.AwaitedEvent{Key: name}
			finished.Tries, finished.FirstStartedAt = attempt, &at
			command.Event = &event.Signal{Key: name, Source: version, ID: id, ReceivedAt: at, Data: json.RawMessage(details)}
			finished.Error = &event.Error{Component: name, Reason: version, Message: message}
		}
		stage := event.StageFinished{Fact: fact, Stage: name, StageAttempt: attempt}
		type appender interface {
			AppendJSON(b []byte) ([]byte, error)
		}
		for _, c := range []struct {
			got  appender
			want any
		}{
			{&event.Command{StepExecute: command}, command},
			{&event.Command{StepExecute: command, EncodedOperation: encoded}, command},
			{result, result},
			{&finished, finished},
			{&stage, stage},
		} {
			want, wantErr := json.Marshal(c.want)
			got, err := c.got.AppendJSON([]byte("before "))
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%T: got error %v, encoding/json returned %v", c.got, err, wantErr)
			}
			if err == nil {
				raw, found := strings.CutPrefix(string(got), "before ")
				if !found {
					t.Fatalf("%T: the bytes before the payload were overwritten: %s", c.got, got)
				}
				if diff := cmp.Diff(string(want), normal(t, raw)); diff != "" {
					t.Errorf("%T (-encoding/json +appended):\n%s", c.got, diff)
				}
			}
		}
	})
}

// normal returns what encoding/json produces from raw JSON in a payload.
func normal(t *testing.T, raw string) string {
	t.Helper()
	var compact, escaped bytes.Buffer
	require.NoErrorf(t, json.Compact(&compact, []byte(raw)), "%s", raw)
	json.HTMLEscape(&escaped, compact.Bytes())
	return escaped.String()
}
