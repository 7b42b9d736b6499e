package steps_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/worker"
)

// Fault is the behaviour of the external systems during a step.
type Fault struct {
	// Status is the status of all answers, with an empty body.
	Status int
	// Garbage answers every call with 200 and an HTML page.
	Garbage bool
	// Silent answers no call.
	Silent bool
	// KillAfter kills the worker after this number of calls: the last answer is not read, and the result is lost. 0 means never.
	KillAfter int
	// Cancel cancels the operation before the result of the step arrives.
	Cancel bool
}

// door is a proxy between the workers and the landscape. It records calls, and makes them fail.
type door struct {
	next http.Handler

	mu    sync.Mutex
	fault *Fault
	kill  context.CancelFunc
	calls []worker.Call
}

// arm begins the recording of a step, disarm ends it and returns the calls.
func (d *door) arm(f *Fault, kill context.CancelFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault, d.kill, d.calls = f, kill, nil
}

func (d *door) disarm() []worker.Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault, d.kill = nil, nil
	return d.calls
}

// note records a call and returns its fault.
func (d *door) note(c worker.Call) (f Fault, nth int, kill context.CancelFunc) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls = append(d.calls, c)
	if d.fault == nil {
		return Fault{}, len(d.calls), nil
	}
	return *d.fault, len(d.calls), d.kill
}

// ServeHTTP implements http.Handler.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/admin/") || r.UserAgent() == landscape.ReconcilerUserAgent {
		d.next.ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	call, ok := callOf(r, body)
	if !ok { // tokens are the client's business
		d.next.ServeHTTP(w, r)
		return
	}
	f, nth, kill := d.note(call)
	switch {
	case f.Status != 0:
		w.WriteHeader(f.Status)
	case f.Garbage:
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html><body>Welcome to the proxy</body></html>")
	case f.Silent:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case f.KillAfter > 0 && nth > f.KillAfter:
		panic(http.ErrAbortHandler)
	case f.KillAfter > 0 && nth == f.KillAfter:
		d.next.ServeHTTP(httptest.NewRecorder(), r)
		kill()
		panic(http.ErrAbortHandler)
	default:
		d.next.ServeHTTP(w, r)
	}
}

// Fields of queries and mutations, behind their alias or without one.
var (
	aliasedField = regexp.MustCompile(`\bresult\s*:\s*([A-Za-z]+)`)
	plainField   = regexp.MustCompile(`\{\s*([A-Za-z]+)`)
)

// bases are the paths of the systems' APIs, relative to which their routes are described.
var bases = map[string]string{"avs": "api/v2/evaluationmetadata", "reconciler": "v1"}

// callOf returns a call in the form of the descriptions of steps, and false for a request for a token.
func callOf(r *http.Request, body []byte) (worker.Call, bool) {
	system, rest, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case strings.Contains(rest, "oauth2/") && strings.HasSuffix(rest, "/token"):
		return worker.Call{}, false
	case rest == "graphql":
		var q struct {
			Query string `json:"query"`
		}
		_ = json.Unmarshal(body, &q) // what is no query has no name
		for _, field := range []*regexp.Regexp{aliasedField, plainField} {
			if m := field.FindStringSubmatch(q.Query); m != nil {
				return worker.Call{System: system, Operation: m[1]}, true
			}
		}
		return worker.Call{System: system, Operation: "(no query)"}, true
	case system == "k8s":
		return kubernetesCall(r.Method, strings.Split(rest, "/")), true
	}
	rest = strings.Trim(strings.TrimPrefix(rest, bases[system]), "/")
	if rest == "" {
		return worker.Call{System: system, Operation: r.Method}, true
	}
	return worker.Call{System: system, Operation: r.Method + " /" + rest}, true
}

// kubernetesCall turns <cluster>/apis/<group>/<version>/namespaces/<namespace>/<resource>/<name> into "get <resource>".
func kubernetesCall(method string, parts []string) worker.Call {
	c := worker.Call{System: parts[0]}
	rest := parts[1:]
	if c.System == "runtimes" {
		c.System, rest = "runtime", parts[2:]
	}
	if len(rest) > 0 && rest[0] == "api" {
		rest = rest[2:]
	} else {
		rest = rest[min(3, len(rest)):]
	}
	if len(rest) > 2 && rest[0] == "namespaces" {
		rest = rest[2:]
	}
	resource := ""
	if len(rest) > 0 {
		resource = rest[0]
	}
	named := len(rest) > 1
	if len(rest) > 2 {
		resource += "/" + rest[2]
	}
	verb := map[string]string{
		http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[method]
	if method == http.MethodGet {
		if verb = "list"; named {
			verb = "get"
		}
	}
	c.Operation = verb + " " + resource
	return c
}

// Matches reports whether an observed call fits a description, in which "{...}" is any segment of the path.
func Matches(described, observed worker.Call) bool {
	if described.System != observed.System {
		return false
	}
	want, got := strings.Split(described.Operation, "/"), strings.Split(observed.Operation, "/")
	if len(want) != len(got) {
		return false
	}
	for i, w := range want {
		w, _, _ = strings.Cut(w, "?")
		if !strings.HasPrefix(w, "{") && w != got[i] {
			return false
		}
	}
	return true
}
