package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// ApprovalStep waits until a person or a system approves the order. The approval is an event with the key "approval.<operation id>" and the
// data {"approved": true}. A real step would first request the approval, with the key.
type ApprovalStep struct{}

// Name returns the name in overlay-approval/hello-world.yaml.
func (ApprovalStep) Name() string { return "Hello_Approval" }

// Run ends with the event. Without an event it is the first try, or the fallback poll, which would look whether the order is approved.
func (ApprovalStep) Run(_ context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	if op.Event == nil {
		return worker.WaitForEvent(op, "approval."+op.ID, 0, "waiting for the approval of the order")
	}
	var answer struct {
		Approved bool `json:"approved"`
	}
	if err := json.Unmarshal(op.Event.Data, &answer); err != nil || !answer.Approved {
		return worker.Fail(op, &worker.Error{Component: component, Reason: "err_not_approved", Message: "the order was not approved by " + op.Event.Source})
	}
	log.Info("order approved", "by", op.Event.Source, "event_id", op.Event.ID)
	return op, 0, nil
}
