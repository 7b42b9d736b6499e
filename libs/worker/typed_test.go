package worker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

type order struct {
	Region string `json:"region"`
	Scaler struct {
		Max int `json:"max"`
	} `json:"scaler"`
}

func TestTyped_WrongType_NamesTheField(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		value any
		want  string
	}{
		"fits":            {map[string]any{"region": "eu", "scaler": map[string]any{"max": 3}, "other": 1}, ""},
		"a nested number": {map[string]any{"scaler": map[string]any{"max": "three"}}, "scaler.max is a text: want int"},
		"a text":          {map[string]any{"region": 7}, "region is a number: want string"},
		"a fraction":      {map[string]any{"scaler": map[string]any{"max": 1.5}}, "scaler.max is a number: want int"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			read := step(func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
				parameters, err := worker.Parameters[order](op)
				if test.want == "" && (err != nil || parameters.Region != "eu" || parameters.Scaler.Max != 3) {
					t.Errorf("parameters are %+v, %v", parameters, err)
				}
				if test.want != "" && (err == nil || err.Error() != "parameters: "+test.want) {
					t.Errorf("the error is %v: want %s", err, test.want)
				}
				if details, err := worker.Details[order](op, "none"); err != nil || details != (order{}) {
					t.Errorf("details of a worker without any are %+v, %v", details, err)
				}
				_, err = worker.Details[order](op, "other")
				return op, 0, err
			})
			r := workertest.Run(t, read, workertest.Operation{Parameters: test.value, Details: map[string]any{"other": test.value}})
			if test.want == "" && r.Outcome != event.OutcomeSucceeded {
				t.Errorf("%s, %+v", r.Outcome, r.Error)
			}
			if want := `details of worker "other": ` + test.want; test.want != "" && (r.Error == nil || r.Error.Message != want) {
				t.Errorf("the error is %+v: want %s", r.Error, want)
			}
		})
	}
}

func TestProgress_Reports_AreCutAndMasked(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("node ", event.MaxProgress)
	reporting := step(func(_ context.Context, op worker.Operation) (worker.Operation, time.Duration, error) {
		op.Progress("3 of 7 nodes", 43)
		op.Progress("password=hunter2", 430)
		op.Progress(long)
		return op, 0, nil
	})
	r := workertest.Run(t, reporting, workertest.Operation{ID: "0a1c6f2e-6c0e-4a9e-9c58-7d1f0f3a2b11"})
	ref := event.CommandRef{OperationID: "0a1c6f2e-6c0e-4a9e-9c58-7d1f0f3a2b11", Cursor: 1}
	want := []event.ProgressNotice{
		{CommandRef: ref, Message: "3 of 7 nodes", Percent: new(43)},
		{CommandRef: ref, Message: "password=[redacted]", Percent: new(100)},
		{CommandRef: ref, Message: long[:event.MaxProgress-3] + "..."},
	}
	if diff := cmp.Diff(want, r.Progress); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
}
