package worker_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// The execution of any command ends with a result that can be encoded.
func FuzzCommandsGiveAResult(f *testing.F) {
	for _, seed := range []string{
		`{}`,
		`{"operation":{"id":"x","parameters":[],"credentials":["kubeconfig"]},"details":{"avs":{"a":1}},"step":"S"}`,
		`{"operation":{"id":"x","parameters":{"a":"b"}},"details":null,"executeBefore":"2030-01-01T00:00:00Z"}`,
		`{"details":[1,2],"stageAttempt":-1,"firstTriedAt":"0001-01-01T00:00:00Z","stageMemory":true}`,
		`{"details":{"avs":null}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var command event.StepExecute
		if json.Unmarshal(data, &command) != nil {
			return
		}
		command.ExecuteBefore = time.Now().Add(time.Minute)
		r := worker.Execute(t.Context(), step(func(ctx context.Context, op operation) (operation, time.Duration, error) {
			into := map[string]any{}
			if err := op.Parameters(&into); err != nil {
				return worker.Fail(op, &worker.Error{Message: "parameters", Err: err})
			}
			if err := op.SaveDetails(map[string]any{"b": 2}); err != nil {
				return op, 0, err
			}
			if err := op.Details("avs", &into); err != nil {
				return worker.RetryWithoutFail(op, time.Second, time.Minute, err)
			}
			_, err := op.Recall(ctx, "x")
			return worker.Retry(op, time.Second, err)
		}), worker.Execution{Command: command, Worker: event.Worker{Name: "avs"}})
		if r.Outcome == "" || r.FinishedAt.Before(r.StartedAt) {
			t.Errorf("result %+v", r)
		}
		if _, payload := r.Payload(); payload == nil {
			t.Error("no payload")
		} else if _, err := json.Marshal(payload); err != nil {
			t.Errorf("payload: %v", err)
		}
	})
}
