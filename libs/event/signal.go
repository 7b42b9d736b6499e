package event

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of events from outside.
const (
	// MaxSignalData is the maximum size of the data of an event, in bytes.
	MaxSignalData = 64 << 10
	// SignalsKept is how long an event is kept for a step that does not wait for it yet, and how long a repetition of an event is recognized.
	SignalsKept = 7 * 24 * time.Hour
)

// AwaitedEvent names the event that a step waits for.
type AwaitedEvent struct {
	// Key consists of tokens of letters, digits, hyphens and underscores, with dots between them. Only one operation should use a key, so
	// it should contain the operation ID, or an ID that the external system has returned.
	Key string `json:"key"`
}

// Validate reports the first member that violates the contract. The error is a *FieldError.
func (e AwaitedEvent) Validate() error {
	var c checks
	c.key("key", e.Key)
	return c.err
}

// Signal is an event from outside for the step that waits for its key.
type Signal struct {
	Key string `json:"key"`
	// Source and ID identify the event. Another event with the same key, source and ID is a repetition, and is ignored.
	Source string `json:"source"`
	ID     string `json:"id"`
	// ReceivedAt is when the orchestrator stored the event.
	ReceivedAt time.Time `json:"receivedAt"`
	// Data is the JSON that the sender has sent; absent if it has sent none. It must not contain secrets.
	Data json.RawMessage `json:"data,omitempty"`
}

const signalPrefix = "keb.signal."

// SignalSubject returns the subject of events with a key.
func SignalSubject(key string) string { return signalPrefix + key }

// KeyOfSignal returns the key in the subject of an event from outside; empty for any other subject.
func KeyOfSignal(subject string) string {
	key, ok := strings.CutPrefix(subject, signalPrefix)
	if !ok {
		return ""
	}
	return key
}

// Validate reports the first member that violates the contract. The error is a *FieldError.
func (s Signal) Validate() error {
	var c checks
	c.key("key", s.Key)
	for _, f := range []struct{ name, value string }{{"source", s.Source}, {"id", s.ID}} {
		c.require(f.value != "", f.name, "is empty")
		c.require(len(f.value) <= maxName, f.name, "is %d bytes long: want at most %d", len(f.value), maxName)
		c.require(isPrintable(f.value), f.name, "is %.50q: want printable characters", f.value)
	}
	c.require(len(s.Data) <= MaxSignalData, "data", "is %d bytes long: want at most %d", len(s.Data), MaxSignalData)
	c.require(len(s.Data) == 0 || json.Valid(s.Data) && utf8.Valid(s.Data), "data", "want JSON in UTF-8")
	c.require(!HoldsNUL(s.Data), "data", "contains the character NUL, which cannot be stored")
	return c.err
}

func isPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// key checks the key of an event.
func (c *checks) key(field, v string) {
	c.require(v != "", field, "is empty")
	c.require(len(v) <= maxName, field, "is %d bytes long: want at most %d", len(v), maxName)
	for token := range strings.SplitSeq(v, ".") {
		c.require(token != "" && isWord(token), field, "is %.50q: want letters, digits, hyphens and underscores, with dots between them", v)
	}
}
