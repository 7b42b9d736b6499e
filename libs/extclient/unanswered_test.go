package extclient_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/extclient"
)

// confided is a secret that a client sends to a system, which repeats it.
const confided = "CANARY&<zg5w7xq2>"

// says starts a server that answers every connection with the same bytes.
func says(t *testing.T, text string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestUnanswered_InvalidHTTP_OmitsData(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		confided + "\r\n\r\n":                                                                  "malformed HTTP response",
		"HTTP/1.1 " + confided + " No\r\n\r\n":                                                 "malformed HTTP status code",
		"HTTP/" + confided + " 200 OK\r\n\r\n":                                                 "malformed HTTP version",
		"HTTP/1.1 200 OK\r\n" + confided + "\r\n\r\n":                                          "malformed MIME header",
		"HTTP/1.1 200 OK\r\nContent-Length: " + confided + "\r\n\r\n":                          "bad Content-Length",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + confided + "\r\n\r\n":                       "unsupported transfer encoding",
		"HTTP/1.1 307 Go\r\nLocation: http://%zz" + confided + "\r\nContent-Length: 0\r\n\r\n": "failed to parse Location header",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + confided + "\r\n":            "invalid byte in chunk length",
		"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + confided:                            "unexpected EOF",
		"HTTP/1.1 200 OK\r\nContent-Length: 19\r\n\r\n" + strings.Repeat(" ", 2) + confided:    "not the expected JSON",
		"": "EOF",
	} {
		client, err := extclient.New(extclient.Config{System: "avs", BaseURL: says(t, text), Timeout: 10 * time.Second}, nil, extclient.Deps{})
		require.NoError(t, err)
		err = client.Do(t.Context(), extclient.Request{Method: http.MethodGet, Route: "/x"}, new(struct{}))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "CANARY") || strings.Contains(err.Error(), "zg5w7xq2") {
			t.Errorf("%q: error %v, want one with %q and without the secret", text, err, want)
		}
		if !extclient.IsTemporary(err) {
			t.Errorf("%q: error %v is not temporary", text, err)
		}
	}
}

func TestUnanswered_NetworkError_KeepsCause(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	for _, c := range []struct{ err, want error }{
		{&url.Error{Op: "Get", URL: "http://x?token=CANARY", Err: context.DeadlineExceeded}, context.DeadlineExceeded},
		{&url.Error{Op: "Get", URL: "http://x?token=CANARY", Err: fmt.Errorf("net/http: %w", io.EOF)}, io.EOF},
		{&url.Error{Op: "Get", URL: "http://x?token=CANARY", Err: refused}, refused},
	} {
		if got := extclient.Unanswered(c.err); !errors.Is(got, c.want) || strings.Contains(got.Error(), "CANARY") {
			t.Errorf("%v became %v, want %v", c.err, got, c.want)
		}
	}
	if got := extclient.Unanswered(errors.New("something about CANARY")); strings.Contains(got.Error(), "CANARY") {
		t.Errorf("the unknown error is repeated: %v", got)
	}
}

// one is a source of a single token.
type one string

func (o one) Token(context.Context) (string, error) { return string(o), nil }
func (one) Forget(string)                           {}

func TestDo_AnswerRepeatsSecret_OmitsIt(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		_, password, _ := r.BasicAuth()
		bare := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		text := fmt.Sprintf("no %s, %s, %s, %s, %s, %s", password, bare, url.QueryEscape(password+bare),
			base64.StdEncoding.EncodeToString([]byte(bare)), r.Form.Get("client_secret"), r.Header.Get("X-Lms-Token"))
		status := http.StatusBadRequest
		body := map[string]any{"message": text}
		if strings.HasSuffix(r.URL.Path, "graphql") {
			status = http.StatusOK
			body = map[string]any{"errors": []any{map[string]any{"message": text, "extensions": map[string]any{
				"error_code": 400, "error_reason": text, "error_component": "the " + strings.TrimPrefix(bare, "Basic "),
			}}}}
		}
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}))
	t.Cleanup(server.Close)
	for name, c := range map[string]struct {
		cfg    extclient.Config
		tokens extclient.TokenSource
		req    extclient.Request
	}{
		"password": {extclient.Config{Username: "keb", Password: confided}, nil, extclient.Request{Method: http.MethodGet, Route: "/x"}},
		"token":    {extclient.Config{}, one(confided), extclient.Request{Method: http.MethodGet, Route: "/x"}},
		"header": {extclient.Config{}, nil, extclient.Request{
			Method: http.MethodGet, Route: "/x", Header: http.Header{"Authorization": {"Bearer " + confided}},
		}},
		"token header": {extclient.Config{}, nil, extclient.Request{
			Method: http.MethodGet, Route: "/x", Header: http.Header{"X-Lms-Token": {confided}},
		}},
		"form":    {extclient.Config{}, nil, extclient.Request{Method: http.MethodPost, Route: "/x", Form: url.Values{"client_secret": {confided}}}},
		"GraphQL": {extclient.Config{}, one(confided), extclient.Request{Route: "/graphql"}},
	} {
		c.cfg.System, c.cfg.BaseURL = "avs", server.URL
		if c.req.Route == "/graphql" {
			c.cfg.BaseURL += "/graphql"
		}
		client, err := extclient.New(c.cfg, c.tokens, extclient.Deps{})
		require.NoError(t, err)
		if c.req.Route == "/graphql" {
			err = client.GraphQL(t.Context(), extclient.GraphQLRequest{Name: "ask", Query: "query { result: ask }"}, nil)
		} else {
			err = client.Do(t.Context(), c.req, nil)
		}
		if err == nil || !strings.Contains(err.Error(), "[redacted]") {
			t.Errorf("%s: error %v has no reason", name, err)
		}
		for _, piece := range []string{"CANARY", "zg5w7xq2", base64.StdEncoding.EncodeToString([]byte(confided))[:12]} {
			if strings.Contains(err.Error(), piece) {
				t.Errorf("%s: error %q repeats the secret", name, err)
			}
		}
	}
}
