package event

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// The payloads that are sent with every step are encoded without reflection. The result is what encoding/json produces, except for raw
// JSON, which is copied unchanged. It must be valid, such as the output of Postgres or json.Marshal. encoding/json would remove its spaces
// and escape <, >, & and the line separators of JavaScript. A fuzz test compares both encoders.

// Command is a StepExecute with an encoded operation, which is the same for every step.
type Command struct {
	StepExecute
	// EncodedOperation is the operation as JSON. If it is empty, the operation of StepExecute is encoded.
	EncodedOperation json.RawMessage
}

const (
	// commandOverhead is the space for the member names, numbers and times of a command, in bytes.
	commandOverhead = 256
	// usualSize is enough space for most results and facts, in bytes.
	usualSize = 480
)

// AppendJSON appends the payload of the command to b.
func (c *Command) AppendJSON(b []byte) ([]byte, error) {
	operation := c.EncodedOperation
	if len(operation) == 0 {
		var err error
		if operation, err = json.Marshal(&c.Operation); err != nil {
			return nil, err
		}
	}
	b = slices.Grow(b, len(operation)+len(c.Details)+len(c.Stage)+len(c.Step)+commandOverhead)
	b = append(b, `{"operation":`...)
	b = append(b, operation...)
	if len(c.Details) > 0 {
		b = append(b, `,"details":`...)
		b = append(b, c.Details...)
	}
	b = appendText(b, `,"stage":`, c.Stage)
	b = appendText(b, `,"step":`, c.Step)
	b = appendNumber(b, `,"cursor":`, c.Cursor)
	b = appendNumber(b, `,"dispatch":`, int64(c.Dispatch))
	b = appendNumber(b, `,"stageAttempt":`, int64(c.StageAttempt))
	b = appendNumber(b, `,"stepAttempt":`, int64(c.StepAttempt))
	b, err := appendTime(b, `,"firstTriedAt":`, c.FirstTriedAt)
	if err != nil {
		return nil, err
	}
	if b, err = appendTime(b, `,"executeBefore":`, c.ExecuteBefore); err != nil {
		return nil, err
	}
	if c.StageMemory {
		b = append(b, `,"stageMemory":true`...)
	}
	if c.Event != nil {
		signal, err := json.Marshal(c.Event)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"event":`...), signal...)
	}
	return append(b, '}'), nil
}

// AppendJSON appends the payload to b.
func (s StepSucceeded) AppendJSON(b []byte) ([]byte, error) {
	r := &s.Result
	b = slices.Grow(b, usualSize+len(r.Details))
	b = appendText(b, `{"operationId":`, r.OperationID)
	b = appendNumber(b, `,"cursor":`, r.Cursor)
	b = appendText(b, `,"stage":`, r.Stage)
	b = appendText(b, `,"step":`, r.Step)
	b = r.Worker.append(b)
	if r.Message != "" {
		b = appendText(b, `,"message":`, r.Message)
	}
	if len(r.Details) > 0 {
		b = append(b, `,"details":`...)
		b = append(b, r.Details...)
	}
	if r.StageMemory {
		b = append(b, `,"stageMemory":true`...)
	}
	if len(r.Removed) > 0 {
		removed, err := json.Marshal(r.Removed)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"removed":`...), removed...)
	}
	b, err := appendTime(b, `,"startedAt":`, r.StartedAt)
	if err != nil {
		return nil, err
	}
	if b, err = appendTime(b, `,"finishedAt":`, r.FinishedAt); err != nil {
		return nil, err
	}
	return append(b, '}'), nil
}

// AppendJSON appends the payload to b.
func (f *StepFinished) AppendJSON(b []byte) ([]byte, error) {
	b, err := f.Fact.append(append(slices.Grow(b, usualSize), '{'))
	if err != nil {
		return nil, err
	}
	b = f.Position.append(append(b, ','))
	b = f.Worker.append(b)
	b = appendText(b, `,"outcome":`, string(f.Outcome))
	if f.Message != "" {
		b = appendText(b, `,"message":`, f.Message)
	}
	if f.Error != nil {
		failure, err := json.Marshal(f.Error)
		if err != nil {
			return nil, err
		}
		b = append(b, `,"error":`...)
		b = append(b, failure...)
	}
	if f.RetryAt != nil {
		if b, err = appendTime(b, `,"retryAt":`, *f.RetryAt); err != nil {
			return nil, err
		}
	}
	if f.Event != nil {
		b = append(appendText(b, `,"event":{"key":`, f.Event.Key), '}')
	}
	if b, err = appendTime(b, `,"startedAt":`, f.StartedAt); err != nil {
		return nil, err
	}
	if b, err = appendTime(b, `,"finishedAt":`, f.FinishedAt); err != nil {
		return nil, err
	}
	if f.Tries != 0 {
		b = appendNumber(b, `,"tries":`, int64(f.Tries))
	}
	if f.FirstStartedAt != nil {
		if b, err = appendTime(b, `,"firstStartedAt":`, *f.FirstStartedAt); err != nil {
			return nil, err
		}
	}
	if f.Next != nil {
		b = append(f.Next.append(append(b, `,"next":{`...)), '}')
	}
	return append(b, '}'), nil
}

// AppendJSON appends the payload to b.
func (f *StageFinished) AppendJSON(b []byte) ([]byte, error) {
	b, err := f.append(append(slices.Grow(b, usualSize), '{'))
	if err != nil {
		return nil, err
	}
	b = appendText(b, `,"stage":`, f.Stage)
	b = appendNumber(b, `,"stageAttempt":`, int64(f.StageAttempt))
	return append(b, '}'), nil
}

// append appends the members of a fact.
func (f *Fact) append(b []byte) ([]byte, error) {
	b = appendText(b, `"operationId":`, f.OperationID)
	b = appendText(b, `,"operationType":`, string(f.OperationType))
	b = appendText(b, `,"instanceId":`, f.InstanceID)
	b = appendNumber(b, `,"cursor":`, f.Cursor)
	return appendTime(b, `,"occurredAt":`, f.OccurredAt)
}

// append appends the members of a position.
func (p *Position) append(b []byte) []byte {
	b = appendText(b, `"stage":`, p.Stage)
	b = appendText(b, `,"step":`, p.Step)
	b = appendNumber(b, `,"stageAttempt":`, int64(p.StageAttempt))
	return appendNumber(b, `,"stepAttempt":`, int64(p.StepAttempt))
}

// append appends the worker as a member that follows another member.
func (w *Worker) append(b []byte) []byte {
	b = appendText(b, `,"worker":{"name":`, w.Name)
	if w.Version != "" {
		b = appendText(b, `,"version":`, w.Version)
	}
	return append(b, '}')
}

// appendText appends a member. name is everything before the value, with quotes, colon and comma.
func appendText(b []byte, name, value string) []byte {
	b = append(b, name...)
	for i := range len(value) {
		if c := value[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' || c == 0x7f {
			quoted, _ := json.Marshal(value) // a string can always be encoded
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, value...)
	return append(b, '"')
}

func appendNumber(b []byte, name string, value int64) []byte {
	return strconv.AppendInt(append(b, name...), value, 10)
}

// appendTime appends a time. The error is that of a time that JSON cannot represent.
func appendTime(b []byte, name string, value time.Time) ([]byte, error) {
	b = append(b, name...)
	if value.Location() != time.UTC || value.Year() < 0 || value.Year() > 9999 {
		text, err := value.MarshalJSON()
		return append(b, text...), err
	}
	b = append(b, '"')
	b = value.AppendFormat(b, time.RFC3339Nano)
	return append(b, '"'), nil
}
