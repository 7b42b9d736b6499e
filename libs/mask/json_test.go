package mask_test

import (
	"encoding/json"
	"testing"

	"github.com/kyma-project/keb/libs/mask"
)

func TestJSON_Credentials_AreRemoved(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		"": "", "{": "",
		`{"edp":{"tokenId":"t-1","number":12345678901234567890}}`:       `{"edp":{"number":12345678901234567890,"tokenId":"t-1"}}`,
		`{"a":[{"accessToken":"x"},{"password":"p","secretName":"s"}]}`: `{"a":[{"accessToken":"[redacted]"},{"password":"[redacted]","secretName":"s"}]}`,
		`{"pin":{"password":4711},"apiKey":["k","l"],"secret":true}`:    `{"apiKey":"[redacted]","pin":{"password":"[redacted]"},"secret":true}`,
		`{"token":null,"password":"","credentials":{"password":"p"}}`:   `{"credentials":{"password":"[redacted]"},"password":"","token":null}`,
		`{"kubeconfig":"apiVersion: v1","url":"https://a:b@c.test"}`:    `{"kubeconfig":"[redacted]","url":"https://[redacted]@c.test"}`,
	} {
		if got := string(mask.JSON(json.RawMessage(document))); got != want {
			t.Errorf("%s became %s, want %s", document, got, want)
		}
	}
}
