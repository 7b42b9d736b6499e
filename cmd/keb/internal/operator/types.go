// Package operator is the client of the orchestrator's operator API.
package operator

import "time"

// Operation is an operation as the operator API shows it. Stages and History are there only when it was asked for by id.
type Operation struct {
	ID           string   `json:"id"`
	Type         string   `json:"type"`
	State        string   `json:"state"`
	InstanceID   string   `json:"instanceId"`
	Plan         string   `json:"plan"`
	Stage        string   `json:"stage"`
	Step         string   `json:"step"`
	StageAttempt int      `json:"stageAttempt"`
	StepAttempt  int      `json:"stepAttempt"`
	Cursor       int64    `json:"cursor"`
	Message      string   `json:"message"`
	Error        *Error   `json:"error"`
	NotCompleted []string `json:"notCompleted"`
	WaitingFor   string   `json:"waitingFor"`
	// CancelRequested is why the operation is to be cancelled.
	CancelRequested string     `json:"cancelRequested"`
	DueAt           *time.Time `json:"dueAt"`
	CreatedAt       time.Time  `json:"createdAt"`
	StartedAt       *time.Time `json:"startedAt"`
	FinishedAt      *time.Time `json:"finishedAt"`
	Stages          []Stage    `json:"stages"`
	History         []Entry    `json:"history"`
}

// Final reports whether the operation has ended.
func (o *Operation) Final() bool {
	return o.State == StateSucceeded || o.State == StateFailed || o.State == StateCancelled
}

// Final states of an operation.
const (
	StateSucceeded = "succeeded"
	StateFailed    = "failed"
	StateCancelled = "cancelled"
)

// Error says what went wrong.
type Error struct {
	Component string `json:"component"`
	Reason    string `json:"reason"`
	Message   string `json:"message"`
}

// String is the error in one line.
func (e *Error) String() string {
	text := e.Message
	if e.Reason != "" {
		text = e.Reason + ": " + text
	}
	if e.Component != "" {
		text = e.Component + ": " + text
	}
	return text
}

// Stage is a stage of an operation. State is finished, current or waiting.
type Stage struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Attempt int    `json:"attempt"`
	Steps   []Step `json:"steps"`
}

// States of a stage.
const (
	StageFinished = "finished"
	StageCurrent  = "current"
	StageWaiting  = "waiting"
)

// Step is a step of an operation. Attempts counts over all attempts of its stage.
type Step struct {
	Name         string     `json:"name"`
	Worker       string     `json:"worker"`
	State        string     `json:"state"`
	Attempts     int        `json:"attempts"`
	FirstTriedAt *time.Time `json:"firstTriedAt"`
	StartedAt    *time.Time `json:"startedAt"`
	FinishedAt   *time.Time `json:"finishedAt"`
	DurationMS   float64    `json:"durationMs"`
	Message      string     `json:"message"`
	Error        *Error     `json:"error"`
}

// States of a step.
const (
	StepWaiting      = "waiting"
	StepCurrent      = "current"
	StepSucceeded    = "succeeded"
	StepRetrying     = "retrying"
	StepFailed       = "failed"
	StepSkipped      = "skipped"
	StepNotCompleted = "not completed"
)

// Entry is one execution of a step.
type Entry struct {
	Cursor        int64      `json:"cursor"`
	Stage         string     `json:"stage"`
	Step          string     `json:"step"`
	Worker        string     `json:"worker"`
	WorkerVersion string     `json:"workerVersion"`
	Outcome       string     `json:"outcome"`
	StageAttempt  int        `json:"stageAttempt"`
	StepAttempt   int        `json:"stepAttempt"`
	Message       string     `json:"message"`
	Error         *Error     `json:"error"`
	StartedAt     *time.Time `json:"startedAt"`
	FinishedAt    *time.Time `json:"finishedAt"`
}

// Operations is one page of operations.
type Operations struct {
	Data       []Operation `json:"data"`
	Count      int         `json:"count"`
	TotalCount int         `json:"totalCount"`
}
