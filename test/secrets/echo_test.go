package secrets

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/test/internal/harness"
)

// echo is a proxy in front of the simulated systems. It fails calls as the worst systems do: its answers contain secrets of the request. It
// also records the secrets that the systems create.
type echo struct {
	next        http.Handler
	server      *httptest.Server
	canaries    *vault
	credentials landscape.Config
	journals    string

	mu sync.Mutex
	// spoils is the number of failed calls of each kind before one succeeds; refused are the systems that reject every call.
	spoils  int
	refused map[string]bool
	seen    map[string]int
	turn    int
	no      int
	// leaked is the number of answers with a secret, by kind of failure.
	leaked map[string]int
}

func newEcho(next http.Handler, canaries *vault) *echo {
	return &echo{next: next, canaries: canaries, refused: map[string]bool{}, seen: map[string]int{}, leaked: map[string]int{}}
}

func (e *echo) addr() string { return e.server.Listener.Addr().String() }

// set changes the failures: n calls of each kind, and all calls of these systems.
func (e *echo) set(n int, refused ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spoils, e.seen, e.refused = n, map[string]int{}, map[string]bool{}
	for _, system := range refused {
		e.refused[system] = true
	}
}

var (
	ids       = regexp.MustCompile(`[0-9a-f-]{8,}|[a-z]-?[0-9]{3,}`)
	operation = regexp.MustCompile(`(?:mutation|query)\s*\w*[^{]*\{\s*(?:\w+:\s*)?(\w+)`)
)

// kind returns the same text for calls with the same purpose.
func kind(r *http.Request, body []byte) string {
	call := r.Method + " " + ids.ReplaceAllString(r.URL.Path, "{}")
	var query struct{ Query string }
	if json.Unmarshal(body, &query) == nil {
		if found := operation.FindStringSubmatch(query.Query); found != nil {
			call += " " + found[1]
		}
	}
	return call
}

// systemOf returns the external system of a path.
func systemOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "k8s" && len(parts) > 1 {
		return parts[1]
	}
	return parts[0]
}

// ServeHTTP fails a call or forwards it.
func (e *echo) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The Reconciler's own calls to a cluster are between two of the systems.
	if strings.HasPrefix(r.URL.Path, "/admin") || r.UserAgent() == landscape.ReconcilerUserAgent {
		e.next.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	secrets := e.secretsIn(r, body)
	e.mu.Lock()
	call := kind(r, body)
	refused := e.refused[systemOf(r.URL.Path)]
	spoil := e.seen[call] < e.spoils || refused
	e.seen[call]++
	if spoil && !refused {
		e.turn++
	}
	turn := e.turn
	e.mu.Unlock()
	if !spoil {
		e.pass(w, r)
		return
	}
	way := ways[turn%len(ways)]
	if refused {
		way = refusals[e.denied()%len(refusals)]
	}
	if len(secrets) > 0 {
		e.mu.Lock()
		e.leaked[way.name]++
		e.mu.Unlock()
	}
	if way.done {
		// An answer that reports success must have had its effect.
		e.next.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
	}
	way.answer(w, r, strings.Join(secrets, " "))
}

// denied returns the number of rejected calls.
func (e *echo) denied() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.no++
	return e.no
}

// pass forwards a call to the system, and records the secrets in its answer.
func (e *echo) pass(w http.ResponseWriter, r *http.Request) {
	rec := &both{ResponseWriter: w}
	e.next.ServeHTTP(rec, r)
	for _, found := range handedOut.FindAllSubmatch(rec.body.Bytes(), -1) {
		e.note("token that a system created", string(found[1]))
	}
}

// handedOut matches a token in an answer, in JSON or in YAML inside a JSON string.
var handedOut = regexp.MustCompile(`(?:access_token"|token"|token)\s*:\s*\\?"?([A-Za-z0-9_.=-]{16,})`)

func (e *echo) note(name, secret string) {
	e.canaries.set(func(c harness.Canaries) { c.AddWhole(name, secret) })
}

// both forwards an answer and keeps a copy.
type both struct {
	http.ResponseWriter
	body bytes.Buffer
}

// Write implements io.Writer.
func (b *both) Write(p []byte) (int, error) {
	b.body.Write(p)
	return b.ResponseWriter.Write(p)
}

// Unwrap gives http.ResponseController access.
func (b *both) Unwrap() http.ResponseWriter { return b.ResponseWriter }

var longWord = regexp.MustCompile(`"(?:clientsecret|clientid|client_secret|token|password|kubeconfig|value)"\s*:\s*"((?:[^"\\]|\\.)+)"`)

// secretsIn returns the secrets of a request.
func (e *echo) secretsIn(r *http.Request, body []byte) []string {
	var found []string
	if user, password, ok := r.BasicAuth(); ok {
		found = append(found, user, password)
	} else if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		found = append(found, token)
		e.note("token that was sent to a system", token)
	}
	if form, err := url.ParseQuery(string(body)); err == nil && form.Get("client_secret") != "" {
		found = append(found, form.Get("client_secret"))
	}
	known := e.canaries.snapshot()
	for _, match := range longWord.FindAllSubmatch(body, -1) {
		var text string
		if json.Unmarshal([]byte(`"`+string(match[1])+`"`), &text) != nil {
			continue
		}
		if len(known.In([]byte(text))) > 0 {
			found = append(found, text)
			if plain, err := base64.StdEncoding.DecodeString(text); err == nil {
				found = append(found, string(plain))
			}
		}
	}
	return found
}

// way is a way to leak a secret in an answer. With done, the call has its effect and the answer reports success.
type way struct {
	name   string
	done   bool
	answer func(w http.ResponseWriter, r *http.Request, secret string)
}

// refusals are permanent rejections, which fail most steps.
var refusals = []way{
	{"refusal", false, func(w http.ResponseWriter, r *http.Request, secret string) {
		answerJSON(w, http.StatusBadRequest, errorBody(r, "this is not allowed to "+secret+" at all"))
	}},
	{"redirect", false, func(w http.ResponseWriter, r *http.Request, secret string) {
		w.Header().Set("Location", "http://"+r.Host+"/elsewhere?secret="+url.QueryEscape(secret))
		w.WriteHeader(http.StatusTemporaryRedirect)
	}},
}

var ways = []way{
	{"message", false, func(w http.ResponseWriter, r *http.Request, secret string) {
		w.Header().Set("Www-Authenticate", "Bearer "+strings.ReplaceAll(secret, "\n", " "))
		answerJSON(w, http.StatusInternalServerError, errorBody(r, "cannot work with "+secret+" now"))
	}},
	{"no JSON", true, func(w http.ResponseWriter, r *http.Request, secret string) {
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "no: "+secret)
	}},
	{"other JSON", true, func(w http.ResponseWriter, r *http.Request, secret string) {
		raw, _ := json.Marshal([]any{secret, map[string]any{secret: secret}})
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(raw)
	}},
	{"status line", false, func(w http.ResponseWriter, _ *http.Request, secret string) {
		raw(w, strings.ReplaceAll(secret, "\n", " ")+" HTTP/1.1\r\n\r\n")
	}},
	{"status code", false, func(w http.ResponseWriter, _ *http.Request, secret string) {
		raw(w, "HTTP/1.1 "+strings.ReplaceAll(secret, "\n", " ")+"\r\n\r\n")
	}},
	{"header", false, func(w http.ResponseWriter, _ *http.Request, secret string) {
		raw(w, "HTTP/1.1 500 No\r\n"+strings.ReplaceAll(secret, "\n", " ")+"\r\nContent-Length: "+strings.ReplaceAll(secret, "\n", " ")+"\r\n\r\n")
	}},
	{"chunk", true, func(w http.ResponseWriter, _ *http.Request, secret string) {
		raw(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n"+strings.ReplaceAll(secret, "\n", " ")+"\r\n")
	}},
	{"long text", false, func(w http.ResponseWriter, r *http.Request, secret string) {
		answerJSON(w, http.StatusBadGateway, errorBody(r, strings.Repeat("x ", 60)+secret+" "+strings.Repeat("y ", 400)))
	}},
}

// errorBody returns an error in the format of the system.
func errorBody(r *http.Request, text string) any {
	switch {
	case strings.HasPrefix(r.URL.Path, "/k8s/"):
		return map[string]any{
			"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": text, "reason": "InternalError", "code": 500,
			"details": map[string]any{"name": text, "causes": []any{map[string]any{"reason": text, "message": text, "field": text}}},
		}
	case strings.Contains(r.URL.Path, "graphql"):
		return map[string]any{"errors": []any{map[string]any{"message": text, "extensions": map[string]any{"error": text, "error_code": 42}}}}
	}
	return map[string]any{"error": text, "message": text, "error_description": text, "description": text, "errors": []any{map[string]any{"message": text}}}
}

func answerJSON(w http.ResponseWriter, status int, body any) {
	if m, ok := body.(map[string]any); ok && m["errors"] != nil && m["message"] == nil {
		status = http.StatusOK // GraphQL
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// raw answers with a text.
func raw(w http.ResponseWriter, text string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = io.WriteString(conn, text)
	_ = conn.Close()
}

// noteMade adds the objects that the systems created for runtimes to the canaries.
func (e *echo) noteMade(t *testing.T) int {
	t.Helper()
	n := 0
	err := filepath.WalkDir(e.journals, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, found := range secretEntry.FindAllSubmatch(content, -1) {
			var text string
			if err := json.Unmarshal([]byte(`"`+string(found[1])+`"`), &text); err != nil {
				return fmt.Errorf("%s: %w", entry.Name(), err)
			}
			// Shorter values are ordinary words.
			if len(text) >= 20 {
				e.note("generated override", text)
				n++
			}
		}
		return nil
	})
	require.NoError(t, err)
	return n
}

var secretEntry = regexp.MustCompile(`"secret":true,"value":"((?:[^"\\]|\\.)*)"`)
