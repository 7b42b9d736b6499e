// Package mask removes credentials from texts that people read: errors, messages and reasons. It is applied where a text enters the
// system, before it is stored, so that the history, the APIs, the console and events show the same text.
package mask

import (
	"regexp"
	"strings"
	"unicode"
)

// Redacted replaces a credential.
const Redacted = "[redacted]"

var (
	privateKey = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)`)
	// userInfo matches the user and the password of a URL. A password may contain an unescaped @.
	userInfo = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^\s/?#"'\\]+@`)
	scheme   = regexp.MustCompile(`(?i)\b(bearer|basic)\s+([A-Za-z0-9._~+/=-]+)`)
	// named matches a name of a secret, and its value, for example client_secret=x and "password": "x".
	named = regexp.MustCompile(`(?i)((?:\b|[a-z0-9_-])(pass(?:word|wd|phrase)|\bpass|pwd|secret|token|authorization|api[_-]?key|access[_-]?key|` +
		`private[_-]?key|kubeconfig|signature|\bsig)\\?["']?\s*[:=]\s*)(\[redacted\]|"[^"]*"?|'[^']*'?|\S+)`)
	jwt = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{5,}(?:\.[A-Za-z0-9_-]*){1,4}`)
	// longRun matches what may be a key, a token or an encoded file. isRandom decides.
	longRun = regexp.MustCompile(`[A-Za-z0-9+/_-]{40,}={0,2}`)
	// digest matches a checksum, which is no secret.
	digest = regexp.MustCompile(`sha(?:256|512):[0-9a-f]+`)
	// prose matches the words after "token: " in an error such as "fetch the token: uaa: status 401", and the names of steps, as in "no
	// kubeconfig: Get_Kubeconfig has not run".
	prose = regexp.MustCompile(`^(?:[A-Z]?[a-z]{1,15}[:,]?|[A-Z][A-Za-z]{0,20}(?:_[A-Z][A-Za-z]{0,20}){1,5})$`)
)

// Text returns a text without credentials: passwords and tokens with their usual names, users and passwords in URLs, authorization
// headers, JSON web tokens, private keys and long random texts. Hosts and paths stay, because operators need them. Text(Text(s)) is
// Text(s).
func Text(s string) string {
	if len(s) < len("pwd=x") {
		return s
	}
	if strings.Contains(s, "PRIVATE KEY") {
		s = privateKey.ReplaceAllString(s, Redacted)
	}
	if strings.ContainsRune(s, '@') {
		s = userInfo.ReplaceAllString(s, "${1}"+Redacted+"@")
	}
	s = replace(scheme, s, func(m []string, _ string) string {
		if isProse(m[2]) {
			return m[0]
		}
		return m[1] + " " + Redacted
	})
	if strings.ContainsAny(s, ":=") {
		s = replace(named, s, func(m []string, rest string) string {
			if describes(m[1], m[2], m[3], rest) {
				return m[0]
			}
			return m[1] + Redacted
		})
	}
	if len(s) < 10 {
		return s
	}
	s = jwt.ReplaceAllString(s, Redacted)
	return maskRuns(s)
}

// replace replaces each match by the result of f, which gets its groups and the text after it.
func replace(pattern *regexp.Regexp, s string, f func(groups []string, rest string) string) string {
	matches := pattern.FindAllStringSubmatchIndex(s, -1)
	if len(matches) == 0 {
		return s
	}
	var out strings.Builder
	end := 0
	for _, m := range matches {
		groups := make([]string, len(m)/2)
		for i := range groups {
			if m[2*i] >= 0 {
				groups[i] = s[m[2*i]:m[2*i+1]]
			}
		}
		out.WriteString(s[end:m[0]])
		out.WriteString(f(groups, s[m[1]:]))
		end = m[1]
	}
	out.WriteString(s[end:])
	return out.String()
}

// isProse reports whether the word after "basic" or "bearer" is no credential.
func isProse(word string) bool {
	switch strings.ToLower(strings.TrimRight(word, ".=")) {
	case "auth", "authentication", "authorization", "token", "tokens", "credentials", "realm", "is", "was", "of", "and", "or":
		return true
	}
	return false
}

// describes reports whether a match of named is an error about a secret and not the secret, as in "fetch the token: status 401". The value
// is then a word before other words. Passwords may be words, so this applies to other names only.
func describes(before, name, value, rest string) bool {
	if name = strings.ToLower(name); strings.HasPrefix(name, "pass") || name == "pwd" || !strings.HasSuffix(before, ": ") {
		return false
	}
	words := strings.TrimLeft(rest, " ")
	if !prose.MatchString(value) || len(words) == len(rest) || words == "" {
		return false
	}
	first := rune(strings.TrimLeft(words+" ", `"'([`)[0])
	return unicode.IsLetter(first)
}

func maskRuns(s string) string {
	matches := longRun.FindAllStringIndex(s, -1)
	if len(matches) == 0 {
		return s
	}
	digests := digest.FindAllStringIndex(s, -1)
	var out strings.Builder
	end := 0
	for _, m := range matches {
		out.WriteString(s[end:m[0]])
		end = m[1]
		if !isRandom(s[m[0]:m[1]]) || contains(digests, m[0]) {
			out.WriteString(s[m[0]:m[1]])
			continue
		}
		out.WriteString(Redacted)
	}
	out.WriteString(s[end:])
	return out.String()
}

func contains(ranges [][]int, at int) bool {
	for _, r := range ranges {
		if r[0] <= at && at < r[1] {
			return true
		}
	}
	return false
}

// isRandom reports whether a part of a long run looks like a random text. Paths and names consist of short or simple parts.
func isRandom(run string) bool {
	for part := range strings.SplitSeq(strings.TrimRight(run, "="), "/") {
		var upper, lower, digit, hyphen bool
		for _, r := range part {
			upper = upper || 'A' <= r && r <= 'Z'
			lower = lower || 'a' <= r && r <= 'z'
			digit = digit || '0' <= r && r <= '9'
			hyphen = hyphen || r == '-' || r == '_'
		}
		if len(part) >= 40 && !hyphen || len(part) >= 20 && upper && lower && digit {
			return true
		}
	}
	return false
}
