package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Group is a number of operations that wait for the same thing.
type Group struct {
	// Reason is retry, no_worker, instance_busy or admission.
	Reason string `json:"reason"`
	Type   string `json:"type"`
	Worker string `json:"worker"`
	Step   string `json:"step"`
	// Since is when the first of them began to wait.
	Since time.Time `json:"since"`
	Count int       `json:"count"`
	Error *Error    `json:"error"`
	// Operations are the ids of the first of them.
	Operations []string `json:"operations"`
}

// Groups are what is stuck, the longest first.
type Groups struct {
	Data []Group `json:"data"`
}

// Stuck lists what does not move, and returns the answer as it came, too.
func (c *Client) Stuck(ctx context.Context) (*Groups, json.RawMessage, error) {
	var out Groups
	raw, err := c.get(ctx, "/stuck", nil, &out)
	if err != nil {
		return nil, nil, fmt.Errorf("list what is stuck: %w", err)
	}
	return &out, raw, nil
}

// Worker is a worker as the operator API shows it.
type Worker struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Replicas int    `json:"replicas"`
	Alive    bool   `json:"alive"`
	// Pending is how many commands wait for it, OperationsWaiting how many operations.
	Pending           int      `json:"pending"`
	OperationsWaiting int      `json:"operationsWaiting"`
	StepsPerMinute    float64  `json:"stepsPerMinute"`
	FailuresPerMinute float64  `json:"failuresPerMinute"`
	MissingSteps      []string `json:"missingSteps"`
}

// Workers is the list of workers.
type Workers struct {
	Data []Worker `json:"data"`
}

// Workers lists the workers, and returns the answer as it came, too.
func (c *Client) Workers(ctx context.Context) (*Workers, json.RawMessage, error) {
	var out Workers
	raw, err := c.get(ctx, "/workers", nil, &out)
	if err != nil {
		return nil, nil, fmt.Errorf("list workers: %w", err)
	}
	return &out, raw, nil
}
