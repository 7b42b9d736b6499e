package operator

import (
	"context"
	"encoding/json"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// Errors shows what operations stand still for and what they failed with, grouped by error. Errors that differ only in names, ids, times and
// numbers are in one group.
type Errors struct {
	// Time is when the answer was made, and CountedAt when the operations were counted.
	Time      time.Time `json:"time"`
	CountedAt time.Time `json:"countedAt"`
	// Now contains operations in progress that fail, get no answer, have no live worker, or are held or limited, and pending operations that are
	// held or limited. An operation stays in its group while its next try is executing.
	Now ErrorGroups `json:"now"`
	// Calm contains operations in progress that poll, wait for an event or execute for longer than usual.
	Calm []CalmGroup `json:"calm"`
	// Failed contains the operations that have failed since FailedSince and were not retried.
	Failed      ErrorGroups `json:"failed"`
	FailedSince time.Time   `json:"failedSince"`
}

// ErrorGroups are groups of operations, the largest first.
type ErrorGroups struct {
	Groups []ErrorGroup `json:"groups"`
	// Operations is the number of operations in all groups and in Others.
	Operations int `json:"operations"`
	// Others counts the operations whose errors are too rare to have a group.
	Others *OtherErrors `json:"others,omitempty"`
}

// OtherErrors counts operations with rare errors.
type OtherErrors struct {
	Errors     int `json:"errors"`
	Operations int `json:"operations"`
}

// ErrorGroup is a group of operations with similar errors.
type ErrorGroup struct {
	// Reason is failing, no_answer, no_worker, held, limited or failed.
	Reason string `json:"reason" jsonschema:"enum=failing,enum=no_answer,enum=no_worker,enum=held,enum=limited,enum=failed"`
	// Key identifies similar errors, for the parameter error of the list of operations. It is absent for groups without an error.
	Key string `json:"key,omitempty"`
	// Error is what the errors have in common. Its component is the failing system. It is absent for groups without an error.
	Error *event.Error `json:"error,omitempty"`
	// Text describes a group without an error.
	Text string `json:"text,omitempty"`
	// Worker is set for the reason no_worker, Hold is the ID of the hold for the reason held, and Limit the name of the limit for the reason
	// limited, unless the operations are pending.
	Worker string `json:"worker,omitempty"`
	Hold   string `json:"hold,omitempty"`
	Limit  string `json:"limit,omitempty"`
	Count  int    `json:"count"`
	// First and Last are the times at which the first and the last of the operations began to stand still, or failed.
	First time.Time             `json:"first"`
	Last  time.Time             `json:"last"`
	Types []event.OperationType `json:"types"`
	// Steps are the steps at which the operations stand or have failed, at most 5, those with most operations first.
	Steps []StepErrors `json:"steps"`
	// MoreSteps is the number of further steps.
	MoreSteps int `json:"moreSteps,omitempty"`
	// Systems are the external systems that these steps call.
	Systems []string `json:"systems"`
	// Sample is one of the operations: the one that has stood still longest, or that failed last.
	Sample ErrorSample `json:"sample"`
	// Query is the query of the list of operations that returns the operations of the group.
	Query string `json:"query"`
}

// StepErrors counts the operations of a group at a step.
type StepErrors struct {
	Worker string `json:"worker"`
	Step   string `json:"step"`
	Count  int    `json:"count"`
}

// ErrorSample is an operation with its whole error.
type ErrorSample struct {
	Operation string              `json:"operation" jsonschema:"format=uuid"`
	Type      event.OperationType `json:"type"`
	// Message is the message of the error.
	Message string `json:"message,omitempty"`
}

// CalmGroup counts operations at a step that need no action.
type CalmGroup struct {
	// Reason is polling, event or slow.
	Reason WaitingReason `json:"reason"`
	Worker string        `json:"worker"`
	Step   string        `json:"step"`
	Count  int           `json:"count"`
	// Since is when the first of the operations began to wait.
	Since time.Time `json:"since"`
	// Long reports whether one of the operations has waited for more than half of the time that the step may take.
	Long  bool   `json:"long,omitempty"`
	Query string `json:"query"`
}

// Errors returns what operations stand still for and have failed with, grouped by error, and the raw answer.
func (c *Client) Errors(ctx context.Context) (*Errors, json.RawMessage, error) {
	return read[Errors](ctx, c, "/errors", nil, "list errors")
}
