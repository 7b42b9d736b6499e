package operatorapi

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/kyma-project/keb/libs/mask"
)

// maxPayload limits the payload in an answer, and maxText one that is not JSON, in bytes.
const maxPayload, maxText = 64 << 10, 8 << 10

// maskPayload returns data without secrets, indented if it is JSON, and whether it is only the beginning.
func maskPayload(data []byte) (text string, truncated bool) {
	limit := maxText
	var indented bytes.Buffer
	switch {
	case json.Indent(&indented, mask.JSON(data), "", "  ") == nil:
		text, limit = indented.String(), maxPayload
	case !utf8.Valid(data) || bytes.ContainsRune(data, 0):
		return "", len(data) > 0 // binary
	default:
		text = mask.Text(string(data))
	}
	if len(text) > limit {
		return strings.ToValidUTF8(text[:limit], ""), true
	}
	return text, false
}

func maskHeader(name, value string) string {
	if mask.IsSecret(name) {
		return mask.Redacted
	}
	return mask.Text(clip(value))
}
