package event

import (
	"bytes"
	"encoding/json"
	"math"
	"time"
	"unicode/utf8"
)

// The payloads that arrive with every step, and requests, are decoded without reflection if they are in the form that Go writes: members in
// order, no spaces between them, plain ASCII text. Everything else is decoded by encoding/json. A fuzz test compares both decoders.

// DecodeJSON decodes a payload in the form that Go writes. If it returns false, s is unchanged, and encoding/json must decode the data.
func (s *StepExecute) DecodeJSON(data []byte) bool {
	var v StepExecute
	r := reader{rest: data}
	r.expect(`{"operation":`)
	r.operation(&v.Operation)
	if r.accept(`,"details":`) {
		v.Details = r.object()
	}
	v.Stage = r.text(`,"stage":`)
	v.Step = r.text(`,"step":`)
	v.Cursor = r.number(`,"cursor":`)
	v.Dispatch = r.count(`,"dispatch":`)
	v.StageAttempt = r.count(`,"stageAttempt":`)
	v.StepAttempt = r.count(`,"stepAttempt":`)
	v.FirstTriedAt = r.time(`,"firstTriedAt":`)
	v.ExecuteBefore = r.time(`,"executeBefore":`)
	v.StageMemory = r.accept(`,"stageMemory":true`)
	if !r.end() {
		return false
	}
	*s = v
	return true
}

// DecodeJSON decodes a payload in the form that Go writes. If it returns false, s is unchanged, and encoding/json must decode the data.
func (s *StepSucceeded) DecodeJSON(data []byte) bool {
	var v Result
	r := reader{rest: data}
	v.OperationID = r.text(`{"operationId":`)
	v.Cursor = r.number(`,"cursor":`)
	v.Stage = r.text(`,"stage":`)
	v.Step = r.text(`,"step":`)
	v.Worker.Name = r.text(`,"worker":{"name":`)
	v.Worker.Version = r.optional(`,"version":`)
	r.expect(`}`)
	v.Message = r.optional(`,"message":`)
	if r.accept(`,"details":`) {
		v.Details = r.object()
	}
	v.StageMemory = r.accept(`,"stageMemory":true`)
	v.StartedAt = r.time(`,"startedAt":`)
	v.FinishedAt = r.time(`,"finishedAt":`)
	if !r.end() {
		return false
	}
	s.Result = v
	return true
}

// DecodeJSON decodes a payload in the form that Go writes. If it returns false, o is unchanged, and encoding/json must decode the data.
func (o *OperationRequested) DecodeJSON(data []byte) bool {
	var v OperationRequested
	r := reader{rest: data}
	r.expect(`{"operation":`)
	r.operation(&v.Operation)
	v.RequestedAt = r.time(`,"requestedAt":`)
	if !r.end() {
		return false
	}
	*o = v
	return true
}

// operation reads an operation. An operation with rare members is left to encoding/json.
func (r *reader) operation(o *Operation) {
	start := *r
	o.ID = r.text(`{"id":`)
	o.Type = OperationType(r.text(`,"type":`))
	o.InstanceID = r.text(`,"instanceId":`)
	o.Plan.ID = r.text(`,"plan":{"id":`)
	o.Plan.Name = r.text(`,"name":`)
	c := &o.Context
	c.GlobalAccountID = r.text(`},"context":{"globalAccountId":`)
	c.SubaccountID = r.text(`,"subaccountId":`)
	c.UserID = r.optional(`,"userId":`)
	c.PlatformRegion = r.optional(`,"platformRegion":`)
	c.Platform = r.optional(`,"platform":`)
	c.LicenseType = r.optional(`,"licenseType":`)
	c.SubscriptionGlobalAccountID = r.optional(`,"subscriptionGlobalAccountId":`)
	o.Runtime.Name = r.text(`},"runtime":{"name":`)
	o.Runtime.ShootName = r.text(`,"shootName":`)
	o.Runtime.ShootDomain = r.text(`,"shootDomain":`)
	o.Runtime.Provider = r.text(`,"provider":`)
	o.Runtime.Region = r.text(`,"region":`)
	r.expect(`}`)
	if r.accept(`,"parameters":`) {
		o.Parameters = r.object()
	}
	if r.accept(`,"credentials":[`) {
		o.Credentials = append(o.Credentials, r.text(``))
		for r.accept(`,`) {
			o.Credentials = append(o.Credentials, r.text(``))
		}
		r.expect(`]`)
	}
	r.expect(`}`)
	if !r.failed {
		return
	}
	*r, *o = start, Operation{}
	if raw := r.object(); !r.failed {
		r.failed = json.Unmarshal(raw, o) != nil
	}
}

// reader reads JSON from left to right. Once a read fails, all following reads fail.
type reader struct {
	rest   []byte
	failed bool
}

// accept reads text and reports whether it was there.
func (r *reader) accept(text string) bool {
	if r.failed || len(r.rest) < len(text) || string(r.rest[:len(text)]) != text {
		return false
	}
	r.rest = r.rest[len(text):]
	return true
}

func (r *reader) expect(text string) {
	if !r.accept(text) {
		r.failed = true
	}
}

// end reports whether all data was read without failure.
func (r *reader) end() bool {
	r.expect(`}`)
	return !r.failed && len(r.rest) == 0
}

// raw reads a member name and its plain text, without quotes.
func (r *reader) raw(name string) []byte {
	r.expect(name)
	r.expect(`"`)
	if r.failed {
		return nil
	}
	for i, c := range r.rest {
		if c == '"' {
			raw := r.rest[:i]
			r.rest = r.rest[i+1:]
			return raw
		}
		if c < ' ' || c == '\\' || c >= utf8.RuneSelf {
			break
		}
	}
	r.failed = true
	return nil
}

func (r *reader) text(name string) string { return string(r.raw(name)) }

// optional reads a member that may be missing.
func (r *reader) optional(name string) string {
	before := *r
	if !r.accept(name) {
		return ""
	}
	*r = before
	return r.text(name)
}

// maxDigits guarantees that a number fits into 64 bits.
const maxDigits = 18

// number reads a member name and an integer.
func (r *reader) number(name string) int64 {
	r.expect(name)
	negative := r.accept(`-`)
	var n int64
	i := 0
	for ; i < len(r.rest) && r.rest[i] >= '0' && r.rest[i] <= '9'; i++ {
		if i < maxDigits {
			n = n*10 + int64(r.rest[i]-'0')
		}
	}
	if i == 0 || i > maxDigits || i > 1 && r.rest[0] == '0' {
		r.failed = true // invalid, or too large
		return 0
	}
	r.rest = r.rest[i:]
	if negative {
		n = -n
	}
	return n
}

func (r *reader) count(name string) int {
	n := r.number(name)
	if n < math.MinInt32 || n > math.MaxInt32 {
		r.failed = true
	}
	return int(n)
}

func (r *reader) time(name string) (t time.Time) {
	if text := r.raw(name); !r.failed {
		r.failed = t.UnmarshalText(text) != nil
	}
	return t
}

// object reads a JSON object, and returns a copy.
func (r *reader) object() json.RawMessage {
	if r.failed || len(r.rest) == 0 || r.rest[0] != '{' {
		r.failed = true
		return nil
	}
	depth, inText := 0, false
	for i := 0; i < len(r.rest); i++ {
		switch c := r.rest[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			if depth--; depth > 0 {
				continue
			}
			raw := r.rest[:i+1]
			r.rest = r.rest[i+1:]
			if r.failed = !json.Valid(raw); r.failed {
				return nil
			}
			return bytes.Clone(raw)
		}
	}
	r.failed = true
	return nil
}
