package mask

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
)

var (
	// secretParts are the parts of the names of members whose values are never shown, and secretEnds the ends of such names. Both are in lower
	// case and without separators.
	secretParts = []string{
		"password", "passwd", "passphrase", "pwd", "credential", "authorization", "cookie", "certificate", "kubeconfig", "accesskey", "apikey", "privatekey",
	}
	secretEnds = []string{"secret", "secrets", "secretkey", "token"}
	// separators are removed from names, so that X-Api-Key, api_key and apiKey are the same.
	separators = strings.NewReplacer("-", "", "_", "")
)

// JSON returns a JSON document without credentials: the values of members that are named like a secret, and credentials in other texts, see
// Text. It returns nil for a document that it cannot read, because that may contain anything.
func JSON(document json.RawMessage) json.RawMessage {
	if len(document) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber() // keep long numbers exact
	var v any
	if decoder.Decode(&v) != nil {
		return nil
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil // more than a document
	}
	out, err := json.Marshal(value(v))
	if err != nil {
		return nil
	}
	return out
}

// value masks a decoded JSON value in place.
func value(v any) any {
	switch v := v.(type) {
	case string:
		return Text(v)
	case []any:
		for i := range v {
			v[i] = value(v[i])
		}
	case map[string]any:
		for key := range v {
			if hides(key, v[key]) {
				v[key] = Redacted
				continue
			}
			v[key] = value(v[key])
		}
	}
	return v
}

// hides reports whether a member is replaced as a whole.
func hides(name string, member any) bool {
	switch member {
	case nil, true, false, "":
		return false
	}
	if _, isObject := member.(map[string]any); isObject && strings.HasSuffix(strings.ToLower(name), "credentials") {
		return false // its members have names of their own, such as user and password
	}
	return IsSecret(name)
}

// IsSecret reports whether the value of a member or of a header is a secret, by its name. The names of secrets, such as targetSecret,
// secretName and credentialsBindingName, are not secret.
func IsSecret(name string) bool {
	name = separators.Replace(strings.ToLower(name))
	if name == "targetsecret" || strings.HasSuffix(name, "name") {
		return false
	}
	return name == "pass" || slices.ContainsFunc(secretParts, func(part string) bool { return strings.Contains(name, part) }) ||
		slices.ContainsFunc(secretEnds, func(end string) bool { return strings.HasSuffix(name, end) })
}
