package cli_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/cmd/keb/internal/cli"
)

// result is the outcome of a command.
type result struct {
	code     int
	out, err string
}

func run(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := cli.Main(t.Context(), args, cli.IO{In: strings.NewReader(stdin), Out: &out, Err: &errs})
	return result{code: code, out: out.String(), err: errs.String()}
}

// api is a fake of the HTTP APIs. It has answers by "METHOD /path", which are used in order; the last one is repeated.
type api struct {
	t       *testing.T
	mu      sync.Mutex
	answers map[string][]string
	asked   []string
}

func newAPI(t *testing.T, answers map[string][]string) (*api, string) {
	t.Helper()
	a := &api{t: t, answers: answers}
	srv := httptest.NewServer(a)
	t.Cleanup(srv.Close)
	return a, strings.TrimPrefix(srv.URL, "http://")
}

// ServeHTTP answers "<status> <body>".
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	a.asked = append(a.asked, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
	key := r.Method + " " + r.URL.Path
	left := a.answers[key]
	if len(left) == 0 {
		a.t.Errorf("unexpected request %s", key)
		w.WriteHeader(http.StatusTeapot)
		return
	}
	if len(left) > 1 {
		a.answers[key] = left[1:]
	}
	status, text, _ := strings.Cut(left[0], " ")
	w.Header().Set("Content-Type", "application/json")
	code, err := strconv.Atoi(status)
	if err != nil {
		a.t.Errorf("the answer to %s is %q, without a status", key, left[0])
		code = http.StatusTeapot
	}
	w.WriteHeader(code)
	if code != http.StatusNoContent {
		_, _ = io.WriteString(w, text)
	}
}

func expect(t *testing.T, got result, code int, out, errs string) {
	t.Helper()
	if diff := cmp.Diff(result{code: code, out: out, err: errs}, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("result differs (-want +got):\n%s", diff)
	}
}

// unreachable is an address without a listener. A free port might be taken by another test.
const unreachable = "127.0.0.1:1"

func TestCommands_ServerUnreachable_Fail(t *testing.T) {
	t.Parallel()
	const addr = unreachable
	request := filepath.Join("..", "..", "..", "..", "examples", "requests", "azure.json")
	for name, args := range map[string][]string{
		"operations":  {"operations", "--operator-addr", addr},
		"operation":   {"operation", "x", "--operator-addr", addr},
		"watch":       {"watch", "x", "--operator-addr", addr},
		"provision":   {"provision", "-f", request, "--osb-addr", addr},
		"deprovision": {"deprovision", "x", "--osb-addr", addr},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run(t, "", args...)
			if got.code != 1 || !strings.Contains(got.err, addr+"; is keb up running? (connection refused)") || strings.Count(got.err, "\n") != 1 {
				t.Errorf("code %d, error %q", got.code, got.err)
			}
		})
	}
}

func TestAddress_WrongScheme_IsRejected(t *testing.T) {
	t.Parallel()
	expect(t, run(t, "", "operations", "--operator-addr", "ftp://x"), 1, "",
		"keb: operator API: \"ftp://x\" is not an address; write host:port or a URL\n")
}

func TestProvision_ExampleRequests_AreAccepted(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "..", "examples", "requests", "*.json"))
	if err != nil || len(files) < 9 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		_, addr := newAPI(t, map[string][]string{"PUT /oauth/cf-eu10/v2/service_instances/i": {`202 {"operation":"op-1"}`}})
		expect(t, run(t, "", "provision", "-f", file, "--id", "i", "--osb-addr", addr), 0,
			"provisioning of instance i accepted; follow it: keb watch op-1\n", "")
	}
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "request.json")
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestProvision_InvalidRequestFile_NamesLine(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ content, want string }{
		"empty":          {"", ":1: the file is empty"},
		"truncated":      {"{\n  \"service_id\": \"s\",\n", ":3: the JSON ends too early"},
		"no JSON":        {"{\n  service_id: s\n}", ":2: invalid character 's' looking for beginning of object key string"},
		"misspelt key":   {"{\n  \"service_id\": \"s\",\n  \"parametres\": {}\n}", `:3: unknown field "parametres"; allowed: instance_id, service_id, plan_id, organization_guid, space_guid, context, parameters`},
		"wrong type":     {"{\"service_id\": 1}", ":1: service_id is a number, must be a string"},
		"no service":     {`{"plan_id":"p"}`, `: key "service_id" is missing`},
		"no plan":        {`{"service_id":"s"}`, `: key "plan_id" is missing`},
		"more than one":  {`{"service_id":"s","plan_id":"p"} {}`, ": more than one JSON value"},
		"a list instead": {`[]`, ":1: the file must hold a JSON object, not: array"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, tc.content)
			expect(t, run(t, "", "provision", "-f", path), 1, "", "keb: "+path+tc.want+"\n")
		})
	}
	t.Run("absent", func(t *testing.T) {
		t.Parallel()
		expect(t, run(t, "", "provision", "-f", "absent.json"), 1, "", "keb: read absent.json: no such file or directory\n")
	})
}

func writeTo(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}
