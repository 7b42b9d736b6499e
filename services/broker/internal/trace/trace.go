// Package trace starts or continues a W3C trace for a request
// (https://www.w3.org/TR/trace-context/).
package trace

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"
)

// Header is the HTTP header, and the CloudEvents extension, that carries a trace.
const Header = "traceparent"

// A version other than 00 may have more behind the flags.
var parent = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?$`)

// Valid reports whether s is a traceparent that may be passed on.
func Valid(s string) bool {
	m := parent.FindStringSubmatch(s)
	switch {
	case m == nil, m[1] == "ff", m[1] == "00" && m[5] != "":
		return false
	}
	return strings.Trim(m[2], "0") != "" && strings.Trim(m[3], "0") != ""
}

// Start makes a traceparent: a new trace, or a new part of the one that the request brings along.
func Start(incoming string) string {
	var id [24]byte
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	traceID, flags := hex.EncodeToString(id[:16]), "01"
	if Valid(incoming) {
		traceID, flags = incoming[3:35], incoming[53:55]
	}
	return "00-" + traceID + "-" + hex.EncodeToString(id[16:]) + "-" + flags
}

type key struct{}

// Handler gives every request a trace, found with From.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := context.WithValue(r.Context(), key{}, Start(r.Header.Get(Header)))
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// From is the traceparent of a request; a new one when Handler has not seen it.
func From(ctx context.Context) string {
	if s, ok := ctx.Value(key{}).(string); ok {
		return s
	}
	return Start("")
}
