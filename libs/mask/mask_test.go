package mask_test

import (
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/mask"
)

func TestText_Credentials_AreRemoved(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"password=hunter2 at https://admin:pa@ss@edp.example.com/x":                   "password=[redacted] at https://[redacted]@edp.example.com/x",
		`Post "https://user:pass@host:8443/a?token=abc": refused`:                     `Post "https://[redacted]@host:8443/a?token=[redacted] refused`,
		"Authorization: Bearer abc.def rejected":                                      "Authorization: Bearer [redacted] rejected",
		"header basic dXNlcjpwYXNz":                                                   "header basic [redacted]",
		`{"client_secret":"abc def","user":"u"}`:                                      `{"client_secret":[redacted],"user":"u"}`,
		`{\"password\":\"abc\"}`:                                                      `{\"password\":[redacted]`,
		"db password: correct horse":                                                  "db password: [redacted] horse",
		"X-Api-Key: 4711":                                                             "X-Api-Key: [redacted]",
		"the key eyJhbGciOiJSUzI1NiJ9.e30.c2ln is old":                                "the key [redacted] is old",
		"-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- is odd": "[redacted] is odd",
		"-----BEGIN PRIVATE KEY-----\nMII...":                                         "[redacted]",
		"key " + strings.Repeat("A1b", 15) + "== of x":                                "key [redacted] of x",
		"key " + strings.Repeat("0123456789abcdef", 4):                                "key [redacted]",
	} {
		if got := mask.Text(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestText_WithoutCredentials_IsUnchanged(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "x", "edp: POST /namespaces/{namespace}/dataTenants: status 500: try later",
		`Post "http://avs.kcp-system.svc.cluster.local:8080/api": dial tcp 10.0.0.7:8080: connect: connection refused`,
		"uaa: fetch the token: the system answers 401", "read the kubeconfig: yaml: line 3: unknown field", "basic authentication failed",
		"instance 5b7e1d0c-3f54-4b8e-8a46-1c9d2e7f6a20 of account 0cf2a3b4-3f54-4b8e-8a46-1c9d2e7f6a20",
		"image europe-docker.pkg.dev/kyma-project/prod/keb@sha256:" + strings.Repeat("0a", 32),
		"/apis/core.gardener.cloud/v1beta1/namespaces/garden-kyma-development/shoots/c-1234567",
		"the secret is missing, tokens: 3", "no target secret: Resolve_Target_Secret saved none", "no kubeconfig: Get_Kubeconfig has not run in this stage",
	} {
		if got := mask.Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, seed := range []string{"", "password: x", "a\xffb", "Bearer x", "https://u:p@h", strings.Repeat("x", 100), "token: a b", "-----BEGIN PRIVATE KEY-----"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once := mask.Text(text)
		if twice := mask.Text(once); twice != once {
			t.Errorf("%q became %q, and then %q", text, once, twice)
		}
		if password := "pa55word"; strings.Contains(mask.Text(text+" password="+password), password) {
			t.Errorf("%q: the password stays", text)
		}
	})
}
