package bus

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

const hexDigits = "0123456789ABCDEF"

// mustEscape holds the bytes to escape. It follows the CloudEvents HTTP binding 3.1.3.2, which the NATS binding adopts: space, quote,
// percent and everything outside printable ASCII must be escaped.
var mustEscape = func() (must [256]bool) {
	for c := range must {
		must[c] = c <= ' ' || c >= 0x7f || c == '"' || c == '%'
	}
	return must
}()

// escape encodes an attribute value as a header value.
func escape(s string) string {
	n := 0
	for i := range len(s) {
		if mustEscape[s[i]] {
			n++
		}
	}
	if n == 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 2*n)
	for i := range len(s) {
		c := s[i]
		if !mustEscape[c] {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	return b.String()
}

var errNotUTF8 = errors.New("is not valid UTF-8")

// unescape decodes a header value once.
func unescape(s string) (string, error) {
	i := strings.IndexByte(s, '%')
	if i < 0 {
		if !utf8.ValidString(s) {
			return "", errNotUTF8
		}
		return s, nil
	}
	b := make([]byte, 0, len(s))
	b = append(b, s[:i]...)
	for i < len(s) {
		if s[i] != '%' {
			b = append(b, s[i])
			i++
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("has a %% at byte %d that is not followed by two hexadecimal digits", i)
		}
		hi, lo := unhex(s[i+1]), unhex(s[i+2])
		if hi < 0 || lo < 0 {
			return "", fmt.Errorf("has a %% at byte %d that is not followed by two hexadecimal digits", i)
		}
		b = append(b, byte(hi<<4|lo))
		i += 3
	}
	if !utf8.Valid(b) {
		return "", errNotUTF8
	}
	return string(b), nil
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
