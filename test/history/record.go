package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Kind is the kind of a record.
type Kind string

// Invocations of the platform.
const (
	Provision   Kind = "provision"
	Update      Kind = "update"
	Deprovision Kind = "deprovision"
	Get         Kind = "get"
	Poll        Kind = "poll"
	Bind        Kind = "bind"
	GetBinding  Kind = "get binding"
	Unbind      Kind = "unbind"
)

// Records of the ledger.
const (
	// Complete has the Objects of one provisioned runtime, by "system/kind".
	Complete Kind = "complete"
	// Created has the Objects that were created by all operations, including those that no longer exist.
	Created Kind = "created"
	// Holds has the Objects of one instance.
	Holds Kind = "holds"
	// Transition is a transition of an operation that has a fact, with its Cursor. Type is that of the operation.
	Transition Kind = "transition"
	// Fact is a fact on the bus, with its Cursor and Type.
	Fact Kind = "fact"
)

// Outcome is what the platform knows about an invocation.
type Outcome string

// The outcomes, see the comment of the package.
const (
	OK      Outcome = "ok"
	Failed  Outcome = "failed"
	Unknown Outcome = "unknown"
)

// States of a polled operation, and types of facts.
const (
	InProgress = "in progress"
	Succeeded  = "succeeded"
	HasFailed  = "failed"

	FactStarted   = "started"
	FactSucceeded = "succeeded"
	FactFailed    = "failed"
	FactCancelled = "cancelled"
)

// Record is one line of a history.
type Record struct {
	Kind     Kind   `json:"kind"`
	Client   int    `json:"client,omitempty"`
	Instance string `json:"instance,omitempty"`
	Binding  string `json:"binding,omitempty"`
	// Operation is the polled operation, or the one that the answer names.
	Operation string `json:"operation,omitempty"`
	// Value is the parameter of a provision or update, the one that a get returned, or a digest of the credentials of a binding.
	Value string `json:"value,omitempty"`
	// Call and Return are nanoseconds since the start of the history.
	Call    int64   `json:"call,omitempty"`
	Return  int64   `json:"return,omitempty"`
	Outcome Outcome `json:"outcome,omitempty"`
	// Status is that of the answer; 0 without an answer.
	Status int    `json:"status,omitempty"`
	State  string `json:"state,omitempty"`

	Objects map[string]int `json:"objects,omitempty"`
	Cursor  int64          `json:"cursor,omitempty"`
	Type    string         `json:"type,omitempty"`
}

// String is the line of the record.
func (r *Record) String() string {
	line, _ := json.Marshal(r) // it has no type that cannot be encoded
	return string(line)
}

// isAccepted reports whether the broker accepted the request as an operation.
func (r *Record) isAccepted() bool {
	return r.Outcome == OK && r.Status == 202 && (r.Kind == Provision || r.Kind == Update || r.Kind == Deprovision)
}

// Write writes a history as JSON lines.
func Write(w io.Writer, records []*Record) error {
	encoder := json.NewEncoder(w)
	for _, r := range records {
		if err := encoder.Encode(r); err != nil {
			return fmt.Errorf("write history: %w", err)
		}
	}
	return nil
}

// Read reads the lines that Write wrote. An error names the line.
func Read(r io.Reader) ([]*Record, error) {
	var records []*Record
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			record := &Record{}
			if err := json.Unmarshal(line, record); err != nil {
				return nil, fmt.Errorf("read history: line %d: %w", n, err)
			}
			records = append(records, record)
		}
		if errors.Is(err, io.EOF) {
			return records, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read history: line %d: %w", n, err)
		}
	}
}
