package mask_test

import (
	"encoding/json"
	"testing"

	"github.com/kyma-project/keb/libs/mask"
)

func TestJSON_Credentials_AreRemoved(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		"": "", "{": "", "not json": "", "{}}": "", `{} "password"`: "",
		`{"edp":{"tokenId":"t-1","number":12345678901234567890}}`:       `{"edp":{"number":12345678901234567890,"tokenId":"t-1"}}`,
		`{"a":[{"accessToken":"x"},{"password":"p","secretName":"s"}]}`: `{"a":[{"accessToken":"[redacted]"},{"password":"[redacted]","secretName":"s"}]}`,
		`{"pin":{"password":4711},"apiKey":["k","l"],"secret":true}`:    `{"apiKey":"[redacted]","pin":{"password":"[redacted]"},"secret":true}`,
		`{"token":null,"password":"","credentials":{"password":"p"}}`:   `{"credentials":{"password":"[redacted]"},"password":"","token":null}`,
		`{"kubeconfig":"apiVersion: v1","url":"https://a:b@c.test"}`:    `{"kubeconfig":"[redacted]","url":"https://[redacted]@c.test"}`,
		`{"list":[{"access_token":"x"},{"proxy":"https://u:p@c.test"}],"kubeconfig":{"a":"b"},"secretsAllowed":true,"tokens":3}`: `{"kubeconfig":"[redacted]",` +
			`"list":[{"access_token":"[redacted]"},{"proxy":"https://[redacted]@c.test"}],"secretsAllowed":true,"tokens":3}`,
		`{"apiKey":{"value":"x"},"clientSecrets":["x"],"password":{}}`: `{"apiKey":"[redacted]","clientSecrets":"[redacted]","password":"[redacted]"}`,
	} {
		if got := string(mask.JSON(json.RawMessage(document))); got != want {
			t.Errorf("%s became %s, want %s", document, got, want)
		}
	}
}

func TestIsSecret_Names_AreToldApart(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"secret": true, "sharedSecret": true, "client_secret": true, "clientSecrets": true, "sharedAccessSecretKey": true, "accessToken": true, "X-Auth-Token": true,
		"DB_PASSWORD": true, "passwd": true, "passphrase": true, "pass": true, "adminPwd": true, "Proxy-Authorization": true, "Set-Cookie": true,
		"clientCertificateData": true, "client_credential": true, "credentials": true, "access_key": true, "AWS-Access-Key-Id": true, "X-Api-Key": true,
		"private-key": true, "kubeconfigData": true,
		"": false, "targetSecret": false, "secretName": false, "secretNamespace": false, "credentialsBindingName": false, "tokenId": false, "tokens": false,
		"clientId": false, "compass": false, "key": false, "Nats-Msg-Id": false,
	} {
		if got := mask.IsSecret(name); got != want {
			t.Errorf("%q: %t, want %t", name, got, want)
		}
	}
}
