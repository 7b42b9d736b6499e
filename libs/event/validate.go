package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// FieldError is returned by the Validate methods. It identifies the member of a payload that violates the contract.
type FieldError struct {
	// Field is the path of the member in the JSON document, for example "operation.id".
	Field string
	// Problem describes what is wrong and what is allowed.
	Problem string
}

// Error returns the field and the problem.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// maxName limits the length of IDs and names, which become tokens of subjects and keys.
const maxName = 200

// checks keeps the first problem.
type checks struct{ err error }

func (c *checks) require(ok bool, field, format string, args ...any) {
	if c.err == nil && !ok {
		c.err = &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)}
	}
}

// word checks an ID or a name, which must be a single token of a subject.
func (c *checks) word(field, v string) {
	c.require(v != "", field, "is empty")
	c.require(len(v) <= maxName, field, "is %d bytes long: want at most %d", len(v), maxName)
	c.require(isWord(v), field, "is %.50q: want letters, digits, hyphens and underscores", v)
}

func isWord(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

func (c *checks) positive(field string, v int64) {
	c.require(v > 0, field, "is %s: want 1 or more", strconv.FormatInt(v, 10))
}

// object checks optional JSON, which must be absent or an object. The decoder has already checked its syntax.
func (c *checks) object(field string, v json.RawMessage) {
	t := bytes.TrimLeft(v, " \t\r\n")
	c.require(len(t) == 0 || t[0] == '{', field, "want a JSON object")
}

func (c *checks) operationType(field string, t OperationType) {
	c.require(slices.Contains(OperationTypes(), t), field, "is %.50q: want one of %q", string(t), OperationTypes())
}

func (c *checks) cause(field string, e *Error) {
	if e != nil {
		c.require(e.Message != "" || e.Reason != "", field, "has neither a message nor a reason")
	}
}

// Validate checks the members that every reader relies on. The error is a *FieldError.
func (o Operation) Validate() error {
	var c checks
	o.check(&c, "")
	return c.err
}

func (o *Operation) check(c *checks, at string) {
	c.word(at+"id", o.ID)
	c.operationType(at+"type", o.Type)
	c.require(o.InstanceID != "", at+"instanceId", "is empty")
	c.object(at+"parameters", o.Parameters)
	if o.Update != nil {
		c.object(at+"update.parameters", o.Update.Parameters)
	}
	if o.Upgrade != nil {
		c.word(at+"upgrade.orchestrationId", o.Upgrade.OrchestrationID)
	}
}

// Validate reports the first member that violates the contract. The error is a *FieldError.
func (p OperationRequested) Validate() error {
	var c checks
	p.Operation.check(&c, "operation.")
	return c.err
}

// Validate reports the first member that violates the contract. The error is a *FieldError.
func (p StepExecute) Validate() error {
	var c checks
	p.Operation.check(&c, "operation.")
	c.object("details", p.Details)
	c.word("stage", p.Stage)
	c.word("step", p.Step)
	c.positive("cursor", p.Cursor)
	c.positive("dispatch", int64(p.Dispatch))
	c.positive("stageAttempt", int64(p.StageAttempt))
	c.positive("stepAttempt", int64(p.StepAttempt))
	c.require(!p.ExecuteBefore.IsZero(), "executeBefore", "is missing")
	if p.Event != nil {
		c.key("event.key", p.Event.Key)
	}
	return c.err
}

// Validate reports the first member that violates the contract. The error is a *FieldError.
func (r CurrentRequest) Validate() error {
	var c checks
	n := len(r.Commands)
	c.require(n > 0 && n <= MaxCurrent, "commands", "are %d: want 1 to %d", n, MaxCurrent)
	for i := 0; i < n && c.err == nil; i++ {
		field := "commands[" + strconv.Itoa(i) + "]."
		c.word(field+"operationId", r.Commands[i].OperationID)
		c.positive(field+"cursor", r.Commands[i].Cursor)
	}
	return c.err
}

// Validate reports the first member that violates the contract. The error is a *FieldError.
func (r ExtendRequest) Validate() error {
	var c checks
	c.word("operationId", r.OperationID)
	c.positive("cursor", r.Cursor)
	c.require(r.Seconds > 0 && r.Seconds <= MaxExtension.Seconds(), "seconds", "are %v: want more than 0 and at most %v", r.Seconds, MaxExtension.Seconds())
	return c.err
}

// Validate reports the first member that violates the contract. The error is a *FieldError.
func (n ProgressNotice) Validate() error {
	var c checks
	c.word("operationId", n.OperationID)
	c.positive("cursor", n.Cursor)
	c.require(len(n.Message) <= MaxProgress, "message", "has %d bytes: want at most %d", len(n.Message), MaxProgress)
	c.require(n.Percent == nil || *n.Percent >= 0 && *n.Percent <= 100, "percent", "is out of range: want 0 to 100")
	return c.err
}

// Validate reports the first member that violates the contract. The error is a *FieldError.
func (r Result) Validate() error {
	var c checks
	r.check(&c)
	return c.err
}

func (r *Result) check(c *checks) {
	c.word("operationId", r.OperationID)
	c.positive("cursor", r.Cursor)
	c.word("stage", r.Stage)
	c.word("step", r.Step)
	c.word("worker.name", r.Worker.Name)
	c.object("details", r.Details)
}

// Validate reports the first member that violates the contract. The error is a *FieldError.
func (p StepRetry) Validate() error {
	var c checks
	p.check(&c)
	c.require(p.RetryAfter >= 0 && !math.IsInf(p.RetryAfter, 0), "retryAfter", "is %v: want seconds, 0 or more", p.RetryAfter)
	c.cause("error", p.Error)
	if p.Event != nil {
		c.key("event.key", p.Event.Key)
	}
	return c.err
}

// Validate reports the first member that violates the contract. The error is a *FieldError.
func (p StepFailed) Validate() error {
	var c checks
	p.check(&c)
	c.cause("error", &p.Error)
	return c.err
}

// Validate reports the first member that violates the contract. The error is a *FieldError.
func (p StepSkipped) Validate() error {
	var c checks
	p.check(&c)
	c.cause("error", p.Error)
	return c.err
}

// Validate reports the first member that violates the contract. The error is a *FieldError.
func (f Fact) Validate() error {
	var c checks
	c.word("operationId", f.OperationID)
	c.operationType("operationType", f.OperationType)
	c.require(f.InstanceID != "", "instanceId", "is empty")
	c.require(f.Cursor >= 0, "cursor", "is negative")
	return c.err
}

// Validate reports the first member that violates the contract. The error is a *FieldError.
func (p OperationSucceeded) Validate() error { return withDetails(p.Fact, p.Details) }

// Validate reports the first member that violates the contract. The error is a *FieldError.
func (p OperationFailed) Validate() error { return withDetails(p.Fact, p.Details) }

// Validate reports the first member that violates the contract. The error is a *FieldError.
func (p OperationCancelled) Validate() error { return withDetails(p.Fact, p.Details) }

func withDetails(f Fact, details json.RawMessage) error {
	if err := f.Validate(); err != nil {
		return err
	}
	var c checks
	c.object("details", details)
	return c.err
}

// HoldsNUL reports whether raw contains an escaped NUL character, which databases cannot store. An escaped backslash before "u0000" does
// not count.
func HoldsNUL(raw []byte) bool {
	escape := []byte(`\u0000`)
	for {
		at := bytes.Index(raw, escape)
		if at < 0 {
			return false
		}
		before := 0
		for before < at && raw[at-before-1] == '\\' {
			before++
		}
		if before%2 == 0 {
			return true
		}
		raw = raw[at+len(escape):]
	}
}
