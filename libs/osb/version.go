package osb

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The header names of the API.
const (
	HeaderVersion             = "X-Broker-API-Version"
	HeaderOriginatingIdentity = "X-Broker-API-Originating-Identity"
	HeaderRequestIdentity     = "X-Broker-API-Request-Identity"
)

// SpecVersion is the supported version of the API.
const SpecVersion = "2.17"

// Version is a version of the API.
type Version struct {
	Major, Minor int
}

// String returns the version in the format of the header.
func (v Version) String() string { return strconv.Itoa(v.Major) + "." + strconv.Itoa(v.Minor) }

// ParseVersion parses an X-Broker-API-Version header. It accepts every minor version of 2, because minor versions only add features. The
// error is 412 and describes the valid values.
func ParseVersion(header string) (Version, *Error) {
	if header == "" {
		return Version{}, preconditionFailed("the header %s is missing: send %s", HeaderVersion, SpecVersion)
	}
	major, minor, ok := strings.Cut(header, ".")
	var v Version
	if ok {
		v.Major, ok = parseNumber(major)
	}
	if ok {
		v.Minor, ok = parseNumber(minor)
	}
	if !ok {
		return Version{}, preconditionFailed("the header %s is not a version of the form 2.x: send %s", HeaderVersion, SpecVersion)
	}
	if v.Major != 2 {
		return Version{}, preconditionFailed("the header %s asks for version %s: this broker serves 2.x, send %s",
			HeaderVersion, v, SpecVersion)
	}
	return v, nil
}

// parseNumber accepts digits only, whereas strconv.Atoi also accepts a sign.
func parseNumber(s string) (int, bool) {
	if s == "" || len(s) > 6 || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

func preconditionFailed(format string, args ...any) *Error {
	return &Error{Status: http.StatusPreconditionFailed, Description: fmt.Sprintf(format, args...)}
}

// maxIdentity is the maximum length of the value of an originating identity in bytes. It becomes a header of a message of NATS, which has 64 KiB for
// all of them.
const maxIdentity = 8 << 10

// ParseOriginatingIdentity parses an X-Broker-API-Originating-Identity header: a platform and a base64 JSON object. It accepts base64 with
// and without padding. The error is 400 and does not contain the value, which identifies a person.
func ParseOriginatingIdentity(header string) (*OriginatingIdentity, *Error) {
	words := strings.Fields(header)
	if len(words) != 2 {
		return nil, BadRequest("the header %s must be a platform and a base64 value, separated by a space", HeaderOriginatingIdentity)
	}
	if len(words[1]) > maxIdentity {
		return nil, BadRequest("the value in the header %s has %d bytes, at most %d are allowed", HeaderOriginatingIdentity, len(words[1]), maxIdentity)
	}
	value, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(words[1], "="))
	if err != nil {
		return nil, BadRequest("the value in the header %s is not base64", HeaderOriginatingIdentity)
	}
	if !utf8.Valid(value) || !isObject(value) {
		return nil, BadRequest("the value in the header %s is not a base64 JSON object", HeaderOriginatingIdentity)
	}
	return &OriginatingIdentity{Platform: words[0], Value: value}, nil
}

// FormatOriginatingIdentity is the reverse of ParseOriginatingIdentity.
func FormatOriginatingIdentity(id OriginatingIdentity) string {
	return id.Platform + " " + base64.StdEncoding.EncodeToString(id.Value)
}

func isObject(raw []byte) bool {
	var members map[string]json.RawMessage
	return json.Unmarshal(raw, &members) == nil && members != nil
}
