package osb

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"
)

// drainLimit is the maximum size of a rejected body that is read, so that the connection can be reused.
const drainLimit = 4 << 20

// members is a decoded JSON object whose members are read by their exact names. err is the first error; after an error the read values
// are invalid.
type members struct {
	raw    json.RawMessage
	values map[string]json.RawMessage
	err    *Error
}

// readBody reads and decodes the body of a request.
func (x *exchange) readBody() (*members, error) {
	if header := x.r.Header.Get("Content-Type"); header != "" {
		media, parameters, err := mime.ParseMediaType(header)
		if charset := parameters["charset"]; err != nil || media != "application/json" || charset != "" && !strings.EqualFold(charset, "utf-8") {
			return nil, BadRequest("the Content-Type must be application/json, in UTF-8")
		}
	}
	if header := x.r.Header.Get("Content-Encoding"); header != "" && !strings.EqualFold(header, "identity") {
		return nil, &Error{Status: http.StatusUnsupportedMediaType, Description: "the body must not have a Content-Encoding"}
	}
	tooLarge := &Error{
		Status: http.StatusRequestEntityTooLarge, Description: fmt.Sprintf("the body is larger than %d bytes", BodyLimit),
	}
	if x.r.ContentLength > BodyLimit+drainLimit {
		return nil, tooLarge
	}
	raw, err := io.ReadAll(io.LimitReader(x.r.Body, BodyLimit+1))
	if err != nil {
		e := BadRequest("the body ends too early")
		e.Err = err
		return nil, e
	}
	if len(raw) > BodyLimit {
		_, _ = io.CopyN(io.Discard, x.r.Body, drainLimit)
		return nil, tooLarge
	}
	m, e := decodeMembers(raw)
	if e != nil {
		return nil, e
	}
	return m, nil
}

// decodeMembers decodes a JSON object. Errors contain the position, but no part of the body.
func decodeMembers(raw []byte) (*members, *Error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, BadRequest("the body is empty: a JSON object is required")
	}
	if !utf8.Valid(raw) {
		return nil, BadRequest("the body is not valid UTF-8")
	}
	m := &members{raw: raw}
	if err := json.Unmarshal(raw, &m.values); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return nil, BadRequest("the body is not valid JSON, at byte %d", syntax.Offset)
		}
		return nil, BadRequest("the body is not a JSON object")
	}
	if m.values == nil {
		return nil, BadRequest("the body is not a JSON object")
	}
	if hasNUL(raw) {
		return nil, BadRequest("the body has the character U+0000 in a string, which cannot be stored")
	}
	return m, nil
}

// hasNUL reports whether valid JSON contains an escaped U+0000. An unescaped one would be invalid.
func hasNUL(raw []byte) bool {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 || i+1 >= len(raw) {
			return false
		}
		if bytes.HasPrefix(raw[i+1:], []byte("u0000")) {
			return true
		}
		raw = raw[i+2:]
	}
}

func (m *members) fail(format string, args ...any) {
	if m.err == nil {
		m.err = BadRequest(format, args...)
	}
}

func (m *members) has(name string) bool {
	raw, ok := m.values[name]
	return ok && string(raw) != "null"
}

// text reads an optional string. Absent and null are empty.
func (m *members) text(name string) string {
	var s string
	if m.has(name) && json.Unmarshal(m.values[name], &s) != nil {
		m.fail("%s must be a string", name)
	}
	return s
}

// required reads a string that must not be empty.
func (m *members) required(name string) string {
	s := m.text(name)
	if s == "" {
		m.fail("%s is missing: a non-empty string is required", name)
	}
	return s
}

// object reads an optional JSON object. Absent and null are nil.
func (m *members) object(name string) json.RawMessage {
	if !m.has(name) {
		return nil
	}
	if raw := m.values[name]; raw[0] == '{' {
		return raw
	}
	m.fail("%s must be a JSON object", name)
	return nil
}

// maintenanceInfo reads the optional maintenance_info and uses only its version. An empty object means none.
func (m *members) maintenanceInfo() *MaintenanceInfo {
	raw := m.object("maintenance_info")
	if raw == nil {
		return nil
	}
	inner, err := decodeMembers(raw)
	if err != nil {
		m.fail("maintenance_info must be a JSON object")
		return nil
	}
	if len(inner.values) == 0 {
		return nil
	}
	info := &MaintenanceInfo{Version: inner.required("version")}
	if inner.err != nil {
		m.fail("maintenance_info.%s", inner.err.Description)
	}
	return info
}

// checkID rejects ids that cannot be stored or would break a log line. It accepts an empty id, which means that the path has none.
func checkID(name, id string) *Error {
	if len(id) > MaxIDLength {
		return BadRequest("the %s is longer than %d bytes", name, MaxIDLength)
	}
	if !utf8.ValidString(id) {
		return BadRequest("the %s is not valid UTF-8", name)
	}
	for _, r := range id {
		if unicode.IsControl(r) {
			return BadRequest("the %s has a control character", name)
		}
	}
	return nil
}
