package extclient

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"net/url"
	"regexp"
	"strings"
	"unicode"
)

// maxMessage bounds how much of a system's own words gets into an error.
const maxMessage = 200

const redacted = "[redacted]"

var (
	// Long runs without a blank are tokens, keys or encoded files rather than words; UUIDs (36) still fit.
	longRun = regexp.MustCompile(`[A-Za-z0-9+/_=.\-]{41,}`)
	named   = regexp.MustCompile(`(?i)((?:pass(?:word|wd)?|secret|token|authorization|api[_-]?key|client[_-]?secret|kubeconfig)["']?\s*[:=]\s*)\S+`)
	bearer  = regexp.MustCompile(`(?i)\b(bearer|basic)\s+\S+`)
	query   = regexp.MustCompile(`\?\S+`)
)

// Sanitize makes a text of an external system fit for logs and errors: one line, short, and without anything that
// looks like a secret.
func Sanitize(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, text)
	text = bearer.ReplaceAllString(text, "$1 "+redacted)
	text = named.ReplaceAllString(text, "${1}"+redacted)
	text = query.ReplaceAllString(text, "?"+redacted)
	text = longRun.ReplaceAllString(text, redacted)
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > maxMessage {
		text = string(runes[:maxMessage]) + "..."
	}
	return text
}

// minSecret is the length, in bytes, from which a text counts as a secret. Anything shorter stands in too many innocent words.
const minSecret = 8

// without is a text without secrets, as they are and as they are in a URL or in base64.
func without(text string, secrets []string) string {
	for _, secret := range secrets {
		if len(secret) < minSecret {
			continue
		}
		for _, written := range []string{
			secret, url.QueryEscape(secret), url.PathEscape(secret), html.EscapeString(secret), base64.StdEncoding.EncodeToString([]byte(secret)),
		} {
			text = strings.ReplaceAll(text, written, redacted)
		}
	}
	return text
}

// maxWord bounds what counts as a word.
const maxWord = 64

// word is a text of an external system that is to be a word or a few, such as a reason; anything else is not shown.
func word(text string, secrets []string) string {
	text = without(text, secrets)
	if len(text) > maxWord || strings.ContainsFunc(text, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-./[] ", r)
	}) {
		return redacted
	}
	return Sanitize(text)
}

// message finds what a system says about a failure in the usual members of a JSON error body, without the secrets that it was told.
// Any other body is not shown at all.
func message(body []byte, secrets []string) string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return ""
	}
	for _, name := range []string{"message", "error_description", "error", "description"} {
		var text string
		if json.Unmarshal(fields[name], &text) == nil && text != "" {
			return Sanitize(without(text, secrets))
		}
	}
	return ""
}
