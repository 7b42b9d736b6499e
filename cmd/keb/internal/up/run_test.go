package up

import (
	"bytes"
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/access"
	"github.com/kyma-project/keb/libs/testkit"
)

// runUntil runs the system until it prints a text, calls then with the output, and stops the system.
func runUntil(t *testing.T, cfg Config, text string, then func(told string)) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out := &testkit.Log{}
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, cfg, out, out) }()
	var err error
	testkit.Eventually(t, 3*time.Minute, text, func() bool {
		select {
		case err = <-ended:
			ended <- err
			t.Fatalf("ended early: %v\n%s", err, out)
		default:
		}
		return strings.Contains(out.String(), text)
	})
	then(out.String())
	stop()
	if err := <-ended; err != nil {
		t.Fatalf("stop: %v\n%s", err, out)
	}
	return out.String()
}

func TestRun_Sample_IsProvisionedOnce(t *testing.T) {
	cfg := validConfig(t)
	cfg.Environment["KEB_LANDSCAPE_ADDR"] = "127.0.0.1:0"
	cfg.Demo, cfg.Fast, cfg.Program = true, true, "keb"
	told := runUntil(t, cfg, "The sample runtime is provisioned", func(string) {})
	for _, want := range []string{
		"KEB is up.", "KEB_STAGE_KEYS_FILE=/", "plan azure", "start/Starting succeeded", "create_runtime/Check_Runtime succeeded",
		"check_kyma/Check_Cluster_Configuration succeeded", "post_actions/AVS_Create_External_Eval_Step succeeded",
	} {
		if !strings.Contains(told, want) {
			t.Errorf("the output does not contain %q:\n%s", want, told)
		}
	}
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	cfg.Environment["KEB_ACCESS_TOKENS_FILE"] = tokens
	token, hash := access.NewToken()
	writeTokens(t, tokens, hash)
	transport := withTLS(t, cfg)
	cfg.Transport = transport
	runUntil(t, cfg, "The sample runtime already exists: instance "+SampleInstance, func(told string) {
		for _, url := range []string{
			regexp.MustCompile(`operator API +(\S+)`).FindStringSubmatch(told)[1],
			regexp.MustCompile(`OSB API +(\S+)`).FindStringSubmatch(told)[1] + "/runtimes",
		} {
			for authorization, want := range map[string]int{"": 401, "Bearer " + hash: 401, "Bearer " + token: 200} {
				if got := status(t, transport, url, authorization); got != want {
					t.Errorf("GET %s, Authorization %q: %d, want %d", url, authorization, got, want)
				}
			}
		}
	})
}

// writeTokens writes a token file with the token of a viewer.
func writeTokens(t *testing.T, path, hash string) {
	t.Helper()
	line, err := access.TokenLine("vera", access.Viewer, hash)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(line+"\n"), 0o600))
}

// withTLS configures certificates for both APIs, and returns a transport that trusts them.
func withTLS(t *testing.T, cfg Config) http.RoundTripper {
	t.Helper()
	ca := testkit.NewCA(t, "up")
	pair := ca.Issue(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}})
	cfg.Environment["KEB_TLS_CERT_FILE"], cfg.Environment["KEB_TLS_KEY_FILE"] = pair.CertFile, pair.KeyFile
	return &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS12}}
}

func status(t *testing.T, transport http.RoundTripper, url, authorization string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	response, err := client.Do(r)
	require.NoError(t, err)
	_ = response.Body.Close()
	return response.StatusCode
}

func TestRun_InvalidTokenFile_FailsBeforeStart(t *testing.T) {
	t.Parallel()
	cfg := validConfig(t)
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	cfg.Environment["KEB_ACCESS_TOKENS_FILE"] = tokens
	writeTokens(t, tokens, "keb_CANARY")
	err := Run(t.Context(), cfg, &bytes.Buffer{}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "KEB_ACCESS_TOKENS_FILE: line 1: sha256: ") || strings.Contains(err.Error(), "CANARY") {
		t.Errorf("error %v", err)
	}
}
