package operatorapi

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/kyma-project/keb/libs/mask"
)

const (
	// maxPayload limits the payload in an answer, and maxBinary one that is not JSON, in bytes.
	maxPayload, maxText = 64 << 10, 8 << 10
)

// secretName matches the names of members and headers whose values are not shown.
var secretName = regexp.MustCompile(`(?i)pass(word|wd|phrase)?$|pwd|secret|token|credential|authorization|cookie|api[_-]?key|access[_-]?key|private[_-]?key|kubeconfig|certificate`)

// maskPayload returns data without secrets, indented if it is JSON, and whether it is only the beginning.
func maskPayload(data []byte) (text string, truncated bool) {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	limit := maxText
	if decoder.Decode(&value) == nil && !decoder.More() {
		if indented, err := json.MarshalIndent(maskValue(value), "", "  "); err == nil {
			text, limit = string(indented), maxPayload
		}
	} else if text = string(data); !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return "", len(data) > 0 // binary
	} else {
		text = maskText(text)
	}
	if len(text) > limit {
		return strings.ToValidUTF8(text[:limit], ""), true
	}
	return text, false
}

// maskValue masks a decoded JSON value.
func maskValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if _, isBool := member.(bool); member != nil && !isBool && secretName.MatchString(name) {
				v[name] = mask.Redacted
				continue
			}
			v[name] = maskValue(member)
		}
		return v
	case []any:
		for i := range v {
			v[i] = maskValue(v[i])
		}
		return v
	case string:
		return maskText(v)
	}
	return v
}

func maskHeader(name, value string) string {
	if secretName.MatchString(name) {
		return mask.Redacted
	}
	return maskText(clip(value))
}

func maskText(text string) string { return mask.Text(text) }
