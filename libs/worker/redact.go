package worker

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/mask"
)

const (
	// minSecret is the minimum length of a secret, in bytes. Shorter texts occur in too many
	// ordinary words.
	minSecret = 8
	// minSecretWord is the minimum length of a secret word in a longer text, such as a token in a kubeconfig.
	minSecretWord = 24
	redacted      = mask.Redacted
)

// learn records the secrets in a value that this execution received, so that they are removed from its result.
// Addresses are not secrets, because errors need them.
func (s *session) learn(value []byte) {
	var found []string
	add := func(text string, least int) {
		isAddress := strings.Contains(text, "://") && !strings.Contains(text, "@")
		if len(text) >= least && !isAddress && !strings.HasSuffix(text, ":") {
			found = append(found, text)
		}
	}
	var decoded any
	parts := []string{strings.TrimSpace(string(value))} // no JSON, or a number such as a PIN
	if json.Unmarshal(value, &decoded) == nil {
		switch decoded.(type) {
		case string, []any, map[string]any:
			parts = texts(decoded, nil)
		}
	}
	for _, text := range parts {
		add(text, minSecret)
		addWords(text, add)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range found {
		if !slices.Contains(s.secrets, text) {
			s.secrets = append(s.secrets, text)
		}
	}
	// Longest first, because a secret may contain another one.
	slices.SortFunc(s.secrets, func(a, b string) int { return len(b) - len(a) })
}

// addWords adds the long words of a text, such as a kubeconfig.
func addWords(text string, add func(string, int)) {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \t\r\n\"',", r) })
	if len(words) < 2 {
		return
	}
	for _, word := range words {
		add(word, minSecretWord)
	}
}

// texts collects the strings of a decoded JSON value.
func texts(v any, into []string) []string {
	switch v := v.(type) {
	case string:
		into = append(into, v)
	case []any:
		for _, e := range v {
			into = texts(e, into)
		}
	case map[string]any:
		for _, e := range v {
			into = texts(e, into)
		}
	}
	return into
}

// guard removes from the texts of a result the secrets that the execution received, and what looks like a credential, because they are
// stored and displayed. Only then does it cut them: a cut secret would not be found.
func (s *session) guard(r *Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clean := func(text string) string { return cut(s.redact(text), maxMessage) }
	r.Message = clean(r.Message)
	for i, object := range r.Removed {
		r.Removed[i] = cut(s.redact(object), event.MaxRemovedSize)
	}
	if r.Error != nil {
		r.Error.Component, r.Error.Reason, r.Error.Message = clean(r.Error.Component), clean(r.Error.Reason), clean(r.Error.Message)
	}
}

// leakingMember returns a member of the details that contains a secret. The caller holds mu.
func (s *session) leakingMember() (string, bool) {
	for name, value := range s.patch {
		var decoded any
		if json.Unmarshal(value, &decoded) != nil {
			continue
		}
		for _, text := range texts(decoded, nil) {
			for _, secret := range s.secrets {
				if strings.Contains(text, secret) {
					return name, true
				}
			}
		}
	}
	return "", false
}

// censored is redact for callers that do not hold mu.
func (s *session) censored(text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.redact(text)
}

// redact replaces secrets in a text, including the beginning of a received secret at the end of a truncated text. The caller holds mu.
func (s *session) redact(text string) string {
	for _, secret := range s.secrets {
		text = strings.ReplaceAll(text, secret, redacted)
		body, cut := strings.CutSuffix(text, "...")
		for n := min(len(secret), len(body)); cut && n >= minSecret; n-- {
			if strings.HasSuffix(body, secret[:n]) {
				text = body[:len(body)-n] + redacted
				break
			}
		}
	}
	return mask.Text(text)
}
