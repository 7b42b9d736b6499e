package operator

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// BatchAction is what an operator orders for many operations.
type BatchAction string

// The actions. A hold or a resume is only previewed as a batch: it is one hold, and covers also operations that match later.
const (
	BatchRetry  BatchAction = "retry"
	BatchCancel BatchAction = "cancel"
	BatchSkip   BatchAction = "skip"
	BatchHold   BatchAction = "hold"
	BatchResume BatchAction = "resume"
)

// BatchActions returns all actions.
func BatchActions() []BatchAction {
	return []BatchAction{BatchRetry, BatchCancel, BatchSkip, BatchHold, BatchResume}
}

// BatchState is the state of a batch.
type BatchState string

// The states. BatchFinished and BatchCancelled are final.
const (
	BatchRunning   BatchState = "running"
	BatchPaused    BatchState = "paused"
	BatchFinished  BatchState = "finished"
	BatchCancelled BatchState = "cancelled"
)

// Final reports whether the batch has ended.
func (s BatchState) Final() bool { return s == BatchFinished || s == BatchCancelled }

// BatchResultState is the state of one operation of a batch.
type BatchResultState string

// The states. BatchSkipped means that the action was no longer possible.
const (
	BatchResultWaiting BatchResultState = "waiting"
	BatchResultDone    BatchResultState = "done"
	BatchResultFailed  BatchResultState = "failed"
	BatchResultSkipped BatchResultState = "skipped"
)

// BatchRequest orders an action on all operations that match a filter.
type BatchRequest struct {
	// Action is retry, cancel or skip. With dryRun it may also be hold or resume.
	Action BatchAction `json:"action" jsonschema:"enum=retry,enum=cancel,enum=skip,enum=hold,enum=resume"`
	// Filter is a query of the list of operations, such as state=failed&plan=azure, without page, page_size and cursor. It must not be empty.
	Filter string `json:"filter"`
	// Stage is the stage to retry from; absent means the failed one. It is allowed only for retry.
	Stage string `json:"stage,omitempty"`
	// Step is the step to skip. It is required for skip. An operation at another step is not changed. For retry it is the step of the stage to
	// retry from.
	Step string `json:"step,omitempty"`
	// Reason is shown with the batch. It is required, except with dryRun.
	Reason string `json:"reason,omitempty"`
	// Rate is the maximum number of operations per second; 0 means no limit, and absent 50.
	Rate *float64 `json:"rate,omitempty"`
	// Expected is the number of operations that a preview has shown. If more match now, the request is rejected.
	Expected int `json:"expected,omitempty"`
	// DryRun returns a preview and changes nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// By is the name of the caller. It is ignored if access control is on.
	By string `json:"by,omitempty"`
}

// BatchPreview is what a batch would do.
type BatchPreview struct {
	// Count is the number of operations that match the filter now.
	Count int `json:"count"`
	// Sample contains the newest of them, at most 10.
	Sample []BatchSample `json:"sample"`
	// Scope is the scope of the hold for hold and resume. To hold the operations, create a hold with it.
	Scope *HoldScope `json:"scope,omitempty"`
	// Holds are the holds with this scope, for resume. To resume the operations, release them.
	Holds []Hold `json:"holds,omitempty"`
}

// BatchSample is an operation in a preview.
type BatchSample struct {
	Operation Operation `json:"operation"`
	// Problem is why the action is not possible now.
	Problem string `json:"problem,omitempty"`
	// Steps is what becomes of the steps of the operation after a retry.
	Steps []PlannedStep `json:"steps,omitempty"`
}

// Batch is an action on many operations. The operations are fixed when it is ordered.
type Batch struct {
	ID     string      `json:"id" jsonschema:"format=uuid"`
	Action BatchAction `json:"action" jsonschema:"enum=retry,enum=cancel,enum=skip"`
	Stage  string      `json:"stage,omitempty"`
	Step   string      `json:"step,omitempty"`
	// Filter is the query of the list of operations that selected the operations.
	Filter    string    `json:"filter"`
	Reason    string    `json:"reason"`
	CreatedBy string    `json:"createdBy"`
	CreatedAt time.Time `json:"createdAt"`
	// Rate is the maximum number of operations per second; 0 means no limit.
	Rate  float64    `json:"rate"`
	State BatchState `json:"state" jsonschema:"enum=running,enum=paused,enum=finished,enum=cancelled"`
	// Total is the number of operations.
	Total int `json:"total"`
	// Waiting is the number of operations without a result.
	Waiting int `json:"waiting"`
	Done    int `json:"done"`
	Failed  int `json:"failed"`
	// Skipped is the number of operations for which the action was no longer possible.
	Skipped   int       `json:"skipped"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// BatchResult is the result of one operation of a batch.
type BatchResult struct {
	OperationID string `json:"operationId" jsonschema:"format=uuid"`
	InstanceID  string `json:"instanceId"`
	// State is waiting, done, failed, or skipped if the action was no longer possible.
	State BatchResultState `json:"state" jsonschema:"enum=waiting,enum=done,enum=failed,enum=skipped"`
	// Error is why the operation failed or was skipped.
	Error string `json:"error,omitempty"`
	// At is the time of the result.
	At *time.Time `json:"at,omitempty"`
}

// OrderBatch orders an action on all operations that match a filter, and returns the batch and the raw answer.
func (c *Client) OrderBatch(ctx context.Context, r BatchRequest) (*Batch, json.RawMessage, error) {
	return write[Batch](ctx, c, http.MethodPost, "/batches", r, "order batch")
}

// PreviewBatch returns what a batch would do, and the raw answer.
func (c *Client) PreviewBatch(ctx context.Context, r BatchRequest) (*BatchPreview, json.RawMessage, error) {
	r.DryRun = true
	return write[BatchPreview](ctx, c, http.MethodPost, "/batches", r, "preview batch")
}

// ChangeBatch pauses, resumes or cancels a batch, and returns it with the raw answer. The action is "pause", "resume" or "cancel".
func (c *Client) ChangeBatch(ctx context.Context, id, action string) (*Batch, json.RawMessage, error) {
	return write[Batch](ctx, c, http.MethodPost, "/batches/"+url.PathEscape(id)+"/"+action, nil, "%s batch %s", action, id)
}

// Batches returns a page of batches, newest first, and the raw answer.
func (c *Client) Batches(ctx context.Context, p Page) (*List[Batch], json.RawMessage, error) {
	return read[List[Batch]](ctx, c, "/batches", p.query(), "list batches")
}

// Batch returns a batch and the raw answer.
func (c *Client) Batch(ctx context.Context, id string) (*Batch, json.RawMessage, error) {
	return read[Batch](ctx, c, "/batches/"+url.PathEscape(id), nil, "read batch %s", id)
}

// BatchResults returns a page of the operations of a batch, and the raw answer.
func (c *Client) BatchResults(ctx context.Context, id string, p Page) (*List[BatchResult], json.RawMessage, error) {
	return read[List[BatchResult]](ctx, c, "/batches/"+url.PathEscape(id)+"/operations", p.query(), "read the operations of batch %s", id)
}
