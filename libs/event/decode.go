package event

import (
	"bytes"
	"encoding/json"
	"math"
	"time"
	"unicode/utf8"
)

// The payloads that come with every step, and requests, are decoded without reflection where they look as Go writes them: the
// members in their order, without spaces between them, texts of plain ASCII. Whatever looks different, or is wrong, is left to
// encoding/json. A fuzz test holds the two together.

// DecodeJSON decodes a payload that looks as Go writes it. False leaves s as it is, and data to encoding/json.
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

// DecodeJSON decodes a payload that looks as Go writes it. False leaves s as it is, and data to encoding/json.
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

// DecodeJSON decodes a payload that looks as Go writes it. False leaves o as it is, and data to encoding/json.
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

// operation reads an operation; one with members that are rare is read by encoding/json.
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

// reader takes one thing after the other from the beginning of JSON. What it does not find makes it fail, for good.
type reader struct {
	rest   []byte
	failed bool
}

// accept takes what stands next if it is text.
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

// end takes the end.
func (r *reader) end() bool {
	r.expect(`}`)
	return !r.failed && len(r.rest) == 0
}

// raw takes a name and the plain text after it, without its quotes.
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

// optional is a text that may be missing.
func (r *reader) optional(name string) string {
	before := *r
	if !r.accept(name) {
		return ""
	}
	*r = before
	return r.text(name)
}

// maxDigits keeps a number within 64 bits.
const maxDigits = 18

// number takes a name and the integer after it.
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
		r.failed = true // no JSON, or a large number
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

// object takes a JSON object as it is, in a copy.
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
