package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kyma-project/keb/libs/event"
)

const (
	// maxPattern limits a pattern, in bytes. Errors that differ only after it have the same key.
	maxPattern = 300
	// gap replaces what differs between similar messages.
	gap = "…"
	// minName is the minimum length of a name that is replaced. A shorter one could be part of an ordinary word.
	minName = 5
	// keyBytes is the length of a key before its encoding.
	keyBytes = 8
)

// ErrorKeyLength is the length of a key.
const ErrorKeyLength = 2 * keyBytes

// errorKey identifies the errors that are similar to e, and is empty if e is nil. op is the operation that has the error.
func errorKey(e *event.Error, op *event.Operation) string {
	if e == nil {
		return ""
	}
	sum := sha256.Sum256([]byte(e.Component + "\x00" + e.Reason + "\x00" + ErrorPattern(e.Message, op)))
	return hex.EncodeToString(sum[:keyBytes])
}

// ErrorPattern returns a message without what belongs to one operation or one try: names of the operation, ids, times, addresses and numbers, but
// with HTTP statuses.
func ErrorPattern(message string, op *event.Operation) string {
	if len(message) > 4*maxPattern {
		message = strings.ToValidUTF8(message[:4*maxPattern], "")
	}
	for _, name := range namesOf(op) {
		message = strings.ReplaceAll(message, name, gap)
	}
	var b []byte
	before := "" // the word before
	for message != "" && len(b) < maxPattern {
		end := strings.IndexFunc(message, func(r rune) bool { return !isWord(r) })
		switch {
		case end < 0:
			end = len(message)
		case end == 0:
			r, size := utf8.DecodeRuneInString(message)
			message = message[size:]
			b = addSeparator(b, r)
			continue
		}
		if trimmed := strings.TrimRight(message[:end], ":."); trimmed != "" {
			end = len(trimmed) // punctuation
		}
		word := message[:end]
		message = message[end:]
		if strings.ContainsFunc(word, unicode.IsDigit) && !isVersion(word) && !isStatus(word, before) {
			b = addGap(b)
		} else {
			b = append(b, word...)
		}
		before = word
	}
	text := strings.TrimSpace(string(b))
	if len(text) > maxPattern {
		text = strings.ToValidUTF8(text[:maxPattern], "")
	}
	return text
}

// isWord reports whether a character is part of a word. Ids, times and addresses with digits are one word each.
func isWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.:+@%", r)
}

// addSeparator adds a character between words. Several blanks become one.
func addSeparator(b []byte, r rune) []byte {
	if !unicode.IsSpace(r) {
		return utf8.AppendRune(b, r)
	}
	if len(b) > 0 && b[len(b)-1] != ' ' {
		b = append(b, ' ')
	}
	return b
}

// addGap adds a gap. A list of gaps becomes one.
func addGap(b []byte) []byte {
	if list := bytes.TrimRight(b, " ,"); bytes.HasSuffix(list, []byte(gap)) {
		return list
	}
	return append(b, gap...)
}

// isVersion reports whether a word is a version in a path, such as v1 or v1beta1.
func isVersion(word string) bool {
	rest, ok := strings.CutPrefix(word, "v")
	if !ok || len(word) > len("v1alpha1") {
		return false
	}
	rest = strings.NewReplacer("alpha", "", "beta", "").Replace(rest)
	return rest != "" && strings.Trim(rest, "0123456789") == "" && len(rest) <= 2
}

// isStatus reports whether a word is an HTTP status, which distinguishes errors.
func isStatus(word, before string) bool {
	word = strings.Trim(word, ".:")
	if len(word) != 3 || word[0] < '1' || word[0] > '5' || strings.Trim(word, "0123456789") != "" {
		return false
	}
	switch strings.ToLower(strings.Trim(before, ".:")) {
	case "status", "code", "http", "answered":
		return true
	}
	return false
}

// namesOf returns the names of an operation that its errors may contain, the longest first.
func namesOf(op *event.Operation) []string {
	if op == nil {
		return nil
	}
	var names []string
	for _, name := range []string{
		op.Runtime.ShootDomain, op.ID, op.InstanceID, op.Runtime.ShootName, op.Runtime.Name, op.Context.SubaccountID, op.Context.GlobalAccountID,
	} {
		if len(name) >= minName {
			names = append(names, name)
		}
	}
	return names
}
