package credentials

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// IncompleteError lists the missing values of the Secret. Both lists are sorted.
type IncompleteError struct {
	// Missing are the required keys that do not exist.
	Missing []string
	// Empty are the required keys whose value is empty or only white space.
	Empty []string
}

// Error contains both lists.
func (e *IncompleteError) Error() string {
	var groups []string
	if len(e.Missing) > 0 {
		groups = append(groups, "missing keys: "+strings.Join(e.Missing, ", "))
	}
	if len(e.Empty) > 0 {
		groups = append(groups, "keys without a value: "+strings.Join(e.Empty, ", "))
	}
	return strings.Join(groups, "; ")
}

// InvalidError is an invalid value of the Secret. It never contains the value, because any key can contain a credential by
// mistake.
type InvalidError struct {
	Key string
	// Problem describes what is wrong with the value.
	Problem string
	// Allowed describes the valid values.
	Allowed string
}

// Error returns the key, the problem, and the valid values.
func (e *InvalidError) Error() string { return e.Key + " " + e.Problem + ": want " + e.Allowed }

// problems joins errors on one line, for a condition's message.
type problems []error

func (p problems) Error() string {
	texts := make([]string, len(p))
	for i, err := range p {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (p problems) Unwrap() []error { return p }

// Parse parses the Secret. Its error contains all problems: an IncompleteError, an InvalidError for each invalid value, or both. No error
// contains a value.
func Parse(s *corev1.Secret) (Credentials, error) {
	r := reader{data: s.Data}
	c := Credentials{
		ClientID:     r.required(KeyClientID),
		ClientSecret: r.required(KeyClientSecret),
		SMURL:        r.address(KeySMURL),
		TokenURL:     r.address(KeyTokenURL),
		ClusterID:    r.required(KeyClusterID),
		Namespace:    r.namespace(),
		Extra:        r.extra(),
	}
	if err := r.err(); err != nil {
		return Credentials{}, err
	}
	return c, nil
}

// reader collects the problems.
type reader struct {
	data       map[string][]byte
	incomplete IncompleteError
	invalid    []error
}

func (r *reader) err() error {
	var all problems
	if len(r.incomplete.Missing)+len(r.incomplete.Empty) > 0 {
		slices.Sort(r.incomplete.Missing)
		slices.Sort(r.incomplete.Empty)
		all = append(all, &r.incomplete)
	}
	all = append(all, r.invalid...)
	if len(all) == 0 {
		return nil
	}
	return all
}

func (r *reader) refuse(key, problem, allowed string) string {
	r.invalid = append(r.invalid, &InvalidError{Key: key, Problem: problem, Allowed: allowed})
	return ""
}

// required returns "" if the value is missing or invalid.
func (r *reader) required(key string) string {
	value, ok := r.data[key]
	if !ok {
		r.incomplete.Missing = append(r.incomplete.Missing, key)
		return ""
	}
	if len(bytes.TrimSpace(value)) == 0 {
		r.incomplete.Empty = append(r.incomplete.Empty, key)
		return ""
	}
	return r.text(key, value)
}

// text rejects characters that no credential contains. The usual mistake is the line break of a shell's echo, and the Service Manager's
// answer to it, 401, does not explain it.
func (r *reader) text(key string, value []byte) string {
	const allowed = "text without white space around it and without control characters"
	text := string(value)
	switch {
	case !utf8.ValidString(text):
		return r.refuse(key, "is not UTF-8", allowed)
	case strings.TrimSpace(text) != text:
		return r.refuse(key, "begins or ends with white space", allowed)
	case strings.ContainsFunc(text, unicode.IsControl):
		return r.refuse(key, "holds a control character", allowed)
	}
	return text
}

// address rejects a value that is not the address of a server. The error of url.Parse would contain the value.
func (r *reader) address(key string) string {
	const allowed = "an address such as https://host, without credentials, query and fragment"
	text := r.required(key)
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return r.refuse(key, "is not a URL", allowed)
	case u.Scheme != "https" && u.Scheme != "http":
		return r.refuse(key, "has neither the scheme https nor http", allowed)
	case u.Hostname() == "":
		return r.refuse(key, "has no host", allowed)
	case u.User != nil:
		return r.refuse(key, "holds credentials", allowed)
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		return r.refuse(key, "has a query or a fragment", allowed)
	}
	return text
}

// namespace is optional. An empty value means none.
func (r *reader) namespace() string {
	value := string(r.data[KeyNamespace])
	if value == "" {
		return ""
	}
	if len(validation.IsDNS1123Label(value)) > 0 {
		allowed := fmt.Sprintf("a namespace: at most %d lower-case letters, digits or hyphens, no hyphen at its ends", validation.DNS1123LabelMaxLength)
		return r.refuse(KeyNamespace, "is not the name of a namespace", allowed)
	}
	return value
}

// extra copies the additional values for the operand's Secret.
func (r *reader) extra() map[string][]byte {
	known := []string{KeyClientID, KeyClientSecret, KeySMURL, KeyTokenURL, KeyClusterID, KeyNamespace}
	var extra map[string][]byte
	for key, value := range r.data {
		if slices.Contains(known, key) {
			continue
		}
		if extra == nil {
			extra = make(map[string][]byte)
		}
		extra[key] = bytes.Clone(value)
	}
	return extra
}
