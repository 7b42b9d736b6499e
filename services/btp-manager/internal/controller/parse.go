package controller

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// parseCredentials parses the Secret. Its error lists all missing keys, keys without a value and invalid values on one line, for a condition's
// message. It never contains a value, because any key can contain a credential by mistake.
func parseCredentials(s *corev1.Secret) (credentials, error) {
	r := reader{data: s.Data}
	c := credentials{
		ClientID:     r.required(keyClientID),
		ClientSecret: r.required(keyClientSecret),
		SMURL:        r.address(keySMURL),
		TokenURL:     r.address(keyTokenURL),
		ClusterID:    r.required(keyClusterID),
		Namespace:    r.namespace(),
		Extra:        r.extra(),
	}
	if err := r.err(); err != nil {
		return credentials{}, err
	}
	return c, nil
}

// reader collects the problems.
type reader struct {
	data                    map[string][]byte
	missing, empty, invalid []string
}

func (r *reader) err() error {
	var all []string
	if len(r.missing) > 0 {
		all = append(all, "missing keys: "+strings.Join(slices.Sorted(slices.Values(r.missing)), ", "))
	}
	if len(r.empty) > 0 {
		all = append(all, "keys without a value: "+strings.Join(slices.Sorted(slices.Values(r.empty)), ", "))
	}
	all = append(all, r.invalid...)
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.Join(all, "; "))
}

func (r *reader) refuse(key, problem, allowed string) string {
	r.invalid = append(r.invalid, key+" "+problem+": want "+allowed)
	return ""
}

// required returns "" if the value is missing or invalid.
func (r *reader) required(key string) string {
	value, ok := r.data[key]
	if !ok {
		r.missing = append(r.missing, key)
		return ""
	}
	if len(bytes.TrimSpace(value)) == 0 {
		r.empty = append(r.empty, key)
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
	value := string(r.data[keyNamespace])
	if value == "" {
		return ""
	}
	if len(validation.IsDNS1123Label(value)) > 0 {
		allowed := fmt.Sprintf("a namespace: at most %d lower-case letters, digits or hyphens, no hyphen at its ends", validation.DNS1123LabelMaxLength)
		return r.refuse(keyNamespace, "is not the name of a namespace", allowed)
	}
	return value
}

// extra copies the additional values for the operand's Secret.
func (r *reader) extra() map[string][]byte {
	known := []string{keyClientID, keyClientSecret, keySMURL, keyTokenURL, keyClusterID, keyNamespace}
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
