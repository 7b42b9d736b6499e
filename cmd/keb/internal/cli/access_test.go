package cli_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/access"
)

func TestAccessToken_Create_PrintsLine(t *testing.T) {
	t.Parallel()
	r := run(t, "", "access", "token", "--name", "Jane Doe", "--role", "operator")
	if r.code != 0 {
		t.Fatalf("%+v", r)
	}
	lines := strings.Split(r.err, "\n")
	if len(lines) < 3 || !strings.Contains(lines[0], "Jane Doe, shown this once") {
		t.Fatalf("error output: %q", r.err)
	}
	token := lines[1]
	sum := sha256.Sum256([]byte(token))
	if want := `- {name: "Jane Doe", role: operator, sha256: ` + hex.EncodeToString(sum[:]) + "}\n"; r.out != want {
		t.Errorf("output %q, want %q", r.out, want)
	}
	// Services accept the printed line.
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	require.NoError(t, os.WriteFile(file, []byte(r.out), 0o600))
	a, err := access.New(access.Config{TokensFile: file}, access.Deps{})
	require.NoError(t, err)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	if i, err := a.Check(request, token); err != nil || i.Name != "Jane Doe" || i.Role != access.Operator {
		t.Errorf("%+v, %v", i, err)
	}
	if i, err := a.Check(request, hex.EncodeToString(sum[:])); err == nil {
		t.Errorf("the hash is accepted as a token: %+v", i)
	}

	var fields map[string]string
	if r := run(t, "", "access", "token", "--name", "joe", "-o", "json"); json.Unmarshal([]byte(r.out), &fields) != nil ||
		fields["role"] != "viewer" || fields["token"] == "" || fields["token"] == token || !strings.Contains(fields["line"], fields["sha256"]) || r.err != "" {
		t.Errorf("as JSON: %+v", r)
	}
	for _, args := range [][]string{{}, {"--name", "joe", "--role", "admin"}, {"--name", ""}, {"--name", "a\nb"}, {"--name", "joe", "more"}} {
		if r := run(t, "", append([]string{"access", "token"}, args...)...); r.code != 2 || r.out != "" || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestToken_Commands_SendIt(t *testing.T) {
	var sent []string
	answer := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = append(sent, r.Header.Get("Authorization"))
		w.WriteHeader(answer)
		_, _ = w.Write([]byte(`{"data":[],"count":0,"totalCount":0,"error":"vera has the role viewer, and this needs the role operator"}`))
	}))
	t.Cleanup(srv.Close)
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("keb_CANARY-file\n"), 0o600))
	command := func(args ...string) result {
		sent = nil
		return run(t, "", append([]string{"--operator-addr", srv.URL, "--osb-addr", srv.URL}, args...)...)
	}
	last := func() string { return strings.Join(sent, ",") }

	if r := command("operations"); r.code != 0 || last() != "" {
		t.Errorf("without a token: %+v, sent %q", r, last())
	}
	if r := command("runtimes"); r.code != 0 || last() != "Basic a2ViOmtlYg==" {
		t.Errorf("the broker without a token: %+v, sent %q", r, last())
	}
	for _, args := range [][]string{{"operations"}, {"orchestrations"}, {"runtimes"}} {
		if command(append(args, "--token-file", file)...); last() != "Bearer keb_CANARY-file" {
			t.Errorf("%v: sent %q", args, last())
		}
	}
	t.Setenv("KEB_TOKEN", "keb_CANARY-environment")
	if command("operations"); last() != "Bearer keb_CANARY-environment" {
		t.Errorf("KEB_TOKEN: sent %q", last())
	}
	for status, want := range map[int]string{
		http.StatusUnauthorized: "rejected the access token", http.StatusForbidden: "vera has the role viewer, and this needs the role operator",
	} {
		answer = status
		for _, list := range []string{"operations", "runtimes"} {
			if r := command(list); r.code != 1 || !strings.Contains(r.err, want) || strings.Contains(r.err, "CANARY") || strings.Count(r.err, "\n") != 1 {
				t.Errorf("%s, %d: %+v", list, status, r)
			}
		}
	}
	t.Setenv("KEB_TOKEN", "")
	answer = http.StatusUnauthorized
	if r := command("operations"); r.code != 1 || !strings.Contains(r.err, "KEB_TOKEN") {
		t.Errorf("401 without a token: %+v", r)
	}
}

func TestToken_Redirect_IsNotSent(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	t.Cleanup(other.Close)
	srv := httptest.NewServer(http.RedirectHandler(other.URL+"/elsewhere", http.StatusPermanentRedirect))
	t.Cleanup(srv.Close)
	t.Setenv("KEB_TOKEN", "keb_CANARY-environment")
	for _, args := range [][]string{{"operations"}, {"operation", "o", "cancel"}, {"upgrade", "kyma", "-t", "all", "--version", "2.0.0"}, {"runtimes"}} {
		r := run(t, "", append([]string{"--operator-addr", srv.URL, "--osb-addr", srv.URL}, args...)...)
		if r.code != 1 || !strings.Contains(r.err, other.URL) || strings.Contains(r.err, "CANARY") || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%v: %+v", args, r)
		}
	}
}
