package mask

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// secretNames are the suffixes (lower case) of members whose values are never shown. The names of secrets (targetSecret, secretName,
// secretBindingName) are not secret.
var secretNames = []string{"clientsecret", "password", "token", "kubeconfig", "secretkey", "credentials", "apikey", "privatekey"}

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
			switch member := v[key].(type) {
			case nil, bool, map[string]any: // the members of an object have names of their own
			default:
				if member != "" && IsSecret(key) {
					v[key] = Redacted
					continue
				}
			}
			v[key] = value(v[key])
		}
	}
	return v
}

// IsSecret reports whether the value of a member is a secret, by its name.
func IsSecret(name string) bool {
	name = strings.ToLower(name)
	if name == "secret" {
		return true
	}
	return slices.ContainsFunc(secretNames, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}
