package stagemem

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const hexDigits = "0123456789ABCDEF"

// prefix returns "<operation>.<stage>.<stage attempt>.".
func (s Scope) prefix() (string, error) {
	switch {
	case s.OperationID == "":
		return "", errors.New("operation id is empty")
	case s.Stage == "":
		return "", errors.New("stage is empty")
	case s.StageAttempt < 1:
		return "", fmt.Errorf("stage attempt is %d: want 1 or more", s.StageAttempt)
	}
	return encode(s.OperationID) + "." + encode(s.Stage) + "." + strconv.Itoa(s.StageAttempt) + ".", nil
}

func names(s Scope, key string) (prefix, token string, err error) {
	if prefix, err = s.prefix(); err != nil {
		return "", "", err
	}
	if key == "" {
		return "", "", errors.New("key is empty")
	}
	return prefix, encode(key), nil
}

// encode encodes a text as one token of a key-value key. It keeps letters, digits, hyphens and underscores, and encodes every other byte
// as "=" and two hexadecimal digits.
func encode(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if plain(c) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('=')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	return b.String()
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_'
}

func decode(token string) (string, error) {
	if !strings.Contains(token, "=") {
		return token, nil
	}
	b := make([]byte, 0, len(token))
	for i := 0; i < len(token); i++ {
		if token[i] != '=' {
			b = append(b, token[i])
			continue
		}
		if i+2 >= len(token) {
			return "", fmt.Errorf("key %q ends within an escape", token)
		}
		n, err := strconv.ParseUint(token[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("key %q has a bad escape", token)
		}
		b = append(b, byte(n))
		i += 2
	}
	return string(b), nil
}
