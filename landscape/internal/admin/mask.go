package admin

import "strings"

const masked = "***"

// secretNames are the suffixes (lower case) of members whose values are never shown. The names of secrets (targetSecret, secretName,
// secretBindingName) are not secret.
var secretNames = []string{"clientsecret", "password", "token", "kubeconfig", "secretkey", "credentials"}

// mask replaces secrets in a decoded JSON document: members with these names, the data of Kubernetes Secrets, and entries
// {key, value, secret: true}.
func mask(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			mask(item)
		}
	case map[string]any:
		if v["kind"] == "Secret" {
			for _, member := range []string{"data", "stringData"} {
				if data, ok := v[member].(map[string]any); ok {
					for key := range data {
						data[key] = masked
					}
				}
			}
		}
		if v["secret"] == true {
			v["value"] = masked
		}
		for key, value := range v {
			if isSecret(key, value) {
				v[key] = masked
				continue
			}
			mask(value)
		}
	}
}

func isSecret(key string, value any) bool {
	text, ok := value.(string)
	if !ok || text == "" {
		return false
	}
	key = strings.ToLower(key)
	if key == "secret" {
		return true
	}
	for _, name := range secretNames {
		if strings.HasSuffix(key, name) {
			return true
		}
	}
	return false
}
