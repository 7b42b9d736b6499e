package extclient

import (
	"encoding/base64"
	"encoding/json"
	"html"
	"net/url"
	"regexp"
	"strings"
	"unicode"

	"github.com/kyma-project/keb/libs/mask"
)

// maxMessage limits the length of a system's message in an error.
const maxMessage = 1000

const redacted = mask.Redacted

var (
	// Long runs without a blank are probably tokens, keys or encoded files. UUIDs (36 characters) are shorter.
	longRun = regexp.MustCompile(`[A-Za-z0-9+/_=.\-]{41,}`)
	query   = regexp.MustCompile(`\?\S+`)
)

// Sanitize makes a text of an external system safe for logs and errors: one line, shortened, and without anything that looks like a
// secret.
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
	text = mask.Text(text)
	text = query.ReplaceAllString(text, "?"+redacted)
	text = longRun.ReplaceAllString(text, redacted)
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > maxMessage {
		text = string(runes[:maxMessage]) + "..."
	}
	return text
}

// minSecret is the minimum length of a secret, in bytes. Shorter texts occur in too many ordinary words.
const minSecret = 8

// without removes secrets from a text, including their URL and base64 encodings.
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

// maxWord is the maximum length of a word.
const maxWord = 64

// Word returns a text of an external system if it is one or a few words, such as a reason, and a placeholder otherwise.
func Word(text string) string { return word(text, nil) }

// word returns a text of an external system if it is one or a few words, such as a reason, and a placeholder otherwise.
func word(text string, secrets []string) string {
	text = without(text, secrets)
	if len(text) > maxWord || strings.ContainsFunc(text, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-./[] ", r)
	}) {
		return redacted
	}
	return Sanitize(text)
}

// message returns the message in the usual members of a JSON error body, without the secrets of the request. It returns "" for any other
// body.
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
