package landscape

import "github.com/kyma-project/keb/libs/mask"

const masked = "***"

// redact replaces secrets in a decoded JSON document: members that are named like a secret, the data of Kubernetes Secrets, and entries
// {key, value, secret: true}.
func redact(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			redact(item)
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
			if text, ok := value.(string); ok && text != "" && mask.IsSecret(key) {
				v[key] = masked
				continue
			}
			redact(value)
		}
	}
}
