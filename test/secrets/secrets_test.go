package secrets

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(harness.Tests{M: m}) }

// overlays is the folder with the steps of Kyma 1.
const overlays = root + "/services/orchestrator/processes/overlays"

// ordered returns an order with unique secrets.
func (w *world) ordered(o *harness.Order, name string) *harness.Order {
	o.ClientID, o.ClientSecret = w.canaries.credential("client id of "+name), w.canaries.credential("client secret of "+name)
	return o
}

// own returns an order of plan own_cluster.
func (w *world) own(name string) *harness.Order {
	o := w.ordered(harness.Azure(), name)
	o.PlanID = harness.PlanOwnCluster
	o.Parameters = map[string]any{
		"name": "own", "shootName": "own-cluster", "shootDomain": "own-cluster.example.com", "kubeconfig": w.kubeconfig("kubeconfig of " + name),
	}
	// Credentials cannot be brought into a cluster that does not exist.
	o.ClientID = ""
	return o
}

// kubeconfig returns a kubeconfig with a unique token.
func (w *world) kubeconfig(name string) string {
	raw, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "own",
		"clusters": []any{map[string]any{"name": "own", "cluster": harness.AnyCluster(w.t)}},
		"contexts": []any{map[string]any{"name": "own", "context": map[string]any{"cluster": "own", "user": "own"}}},
		"users": []any{map[string]any{"name": "own", "user": map[string]any{
			"token": w.canaries.credential("token in the " + name),
		}}},
	})
	require.NoError(w.t, err)
	return base64.StdEncoding.EncodeToString(raw)
}

// finding is a secret in a forbidden place.
type finding struct{ place, secret string }

// scan searches for every secret in every place. The caller omits permitted content.
func (w *world) scan(places map[string][]byte) []finding {
	w.t.Helper()
	canaries := w.canaries.snapshot()
	var found []finding
	for _, place := range slices.Sorted(maps.Keys(places)) {
		for _, name := range canaries.In(places[place]) {
			found = append(found, finding{place, name})
		}
	}
	return found
}

// scanFiles searches every file that the installation wrote.
func (w *world) scanFiles() (found []finding, read int) {
	w.t.Helper()
	in, read := w.canaries.snapshot().Under(w.t, w.dir)
	for _, file := range slices.Sorted(maps.Keys(in)) {
		for _, name := range in[file] {
			// Postgres stores the password of its superuser for the next start in a file that only its user can read.
			if file == "postgres/keb.password" {
				continue
			}
			found = append(found, finding{file, name})
		}
	}
	return found, read
}

// onTheWire returns all messages of the bus by permitted content. Questions and answers are never stored and may contain secrets for their
// recipients. All other messages contain no secrets.
func (w *world) onTheWire() (stored map[string][]byte, asked map[string]int) {
	w.recorder.mu.Lock()
	defer w.recorder.mu.Unlock()
	stored, asked = map[string][]byte{}, map[string]int{}
	canaries := w.canaries.snapshot()
	questions := map[string][]byte{}
	for _, m := range w.recorder.messages {
		var text bytes.Buffer
		fmt.Fprintf(&text, "%s %s\n", m.Subject, m.Reply)
		for name, values := range m.Header {
			fmt.Fprintf(&text, "%s: %s\n", name, strings.Join(values, ", "))
		}
		text.Write(m.Data)
		text.WriteByte('\n')
		switch {
		case strings.HasPrefix(m.Subject, "_INBOX"), strings.HasPrefix(m.Subject, "_R_."):
			questions["an answer"] = append(questions["an answer"], text.Bytes()...)
		case strings.HasPrefix(m.Subject, "keb.ask."):
			questions[m.Subject] = append(questions[m.Subject], text.Bytes()...)
		default:
			root, _, _ := strings.Cut(m.Subject, ".")
			if parts := strings.SplitN(m.Subject, ".", 3); len(parts) > 1 {
				root = parts[0] + "." + parts[1]
			}
			stored["messages "+root] = append(stored["messages "+root], text.Bytes()...)
		}
	}
	for subject, content := range questions {
		if names := canaries.In(content); len(names) > 0 {
			asked[subject] = len(names)
		}
	}
	return stored, asked
}

// get reads a page of the operator API or the broker. It reads a stream for a moment.
func (w *world) get(address string, change func(*http.Request)) (int, []byte) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), startLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	require.NoError(w.t, err)
	if change != nil {
		change(request)
	}
	response, err := w.HTTP.Do(request)
	require.NoError(w.t, err)
	defer response.Body.Close()
	var body bytes.Buffer
	fmt.Fprintln(&body, response.Header)
	_, _ = io.Copy(&body, response.Body)
	return response.StatusCode, body.Bytes()
}

// follow reads a stream of server-sent events until the test stops it.
func (w *world) follow(address string) (stop func() []byte) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	require.NoError(w.t, err)
	client := &http.Client{Transport: w.HTTP.Transport}
	response, err := client.Do(request)
	if err != nil || response.StatusCode != http.StatusOK {
		w.t.Fatalf("follow %s: %v", address, err)
	}
	var body bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(&body, response.Body) // until it is cancelled
		_ = response.Body.Close()
	}()
	return sync.OnceValue(func() []byte {
		cancel()
		<-done
		return body.Bytes()
	})
}

// answers returns the answers of the APIs: each GET route of the operator API, the console, and the list of runtimes.
func (w *world) answers(orders []*harness.Order, operations, orchestrations []string) map[string][]byte {
	w.t.Helper()
	out := map[string][]byte{}
	raw, err := os.ReadFile(filepath.Join(root, "api/openapi.yaml"))
	require.NoError(w.t, err)
	var described struct {
		Paths map[string]map[string]any
	}
	require.NoError(w.t, yaml.Unmarshal(raw, &described))
	routes := 0
	for path, methods := range described.Paths {
		if methods["get"] == nil || path == "/stream" || strings.HasPrefix(path, "/console/login/oidc") {
			continue
		}
		routes++
		paths := []string{path}
		if strings.Contains(path, "{id}") {
			ids := operations
			if strings.HasPrefix(path, "/orchestrations") {
				ids = orchestrations
			}
			paths = nil
			for _, id := range ids {
				paths = append(paths, strings.ReplaceAll(path, "{id}", id))
			}
		}
		for _, path := range paths {
			if strings.Contains(path, "{operation}") {
				list := harness.Get[struct {
					Data []struct{ OperationID string }
				}](w.System, "http://"+w.operator+strings.TrimSuffix(path, "/{operation}"))
				if len(list.Data) == 0 {
					continue
				}
				path = strings.ReplaceAll(path, "{operation}", list.Data[0].OperationID)
			}
			status, body := w.get("http://"+w.operator+path, nil)
			if status >= http.StatusInternalServerError || status == http.StatusUnauthorized {
				w.t.Errorf("GET %s: %d", path, status)
			}
			out["operator API "+path] = body
		}
	}
	if routes < 12 {
		w.t.Errorf("only %d GET routes in api/openapi.yaml", routes)
	}
	status, page := w.get("http://"+w.operator+"/console/", nil)
	if status != http.StatusOK {
		w.t.Errorf("GET /console/: %d", status)
	}
	out["console"] = page
	platform := func(r *http.Request) {
		r.SetBasicAuth("keb", w.secrets.Read("cli/osb-password"))
		r.Header.Set(osb.HeaderVersion, osb.SpecVersion)
	}
	paths := []string{"/v2/catalog", "/runtimes", "/info/runtimes", "/runtimes?state=all&op_detail=all&kyma_config=true&cluster_config=true"}
	for _, o := range orders {
		paths = append(paths, "/v2/service_instances/"+o.InstanceID, "/v2/service_instances/"+o.InstanceID+"/last_operation", "/kubeconfig/"+o.InstanceID)
	}
	for _, path := range paths {
		_, out["broker "+path] = w.get("http://"+w.osb+path, platform)
	}
	for _, p := range w.all {
		if p.Ended() {
			continue
		}
		for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
			_, out[p.service+" "+path] = w.get("http://"+p.metrics+path, nil)
		}
	}
	return out
}

// commands returns the output of the read commands of keb.
func (w *world) commands(operations, orchestrations []string) map[string][]byte {
	w.t.Helper()
	env := []string{
		"KEB_OSB_ADDR=" + w.osb, "KEB_OPERATOR_ADDR=" + w.operator, "KEB_OSB_USER=keb", "KEB_OSB_PASSWORD_FILE=" + filepath.Join(w.secrets.Dir, "cli/osb-password"),
		"KEB_TOKEN_FILE=" + filepath.Join(w.secrets.Dir, "cli/operator-token"),
	}
	list := [][]string{
		{"operations"},
		{"operations", "-o", "json"},
		{"runtimes"},
		{"runtimes", "-o", "json"},
		{"stuck"},
		{"stuck", "-o", "json"},
		{"workers"},
		{"workers", "-o", "json"},
		{"orchestrations"},
		{"orchestrations", "-o", "json"},
	}
	for _, id := range operations[:min(len(operations), 4)] {
		list = append(list, []string{"operation", id}, []string{"operation", id, "-o", "json"})
	}
	for _, id := range orchestrations {
		list = append(list, []string{"orchestrations", id, "-o", "json"}, []string{"orchestrations", id, "operations", "-o", "json"})
	}
	out := map[string][]byte{}
	for _, args := range list {
		p := harness.Spawn(w.t, harness.Keb(w.t), env, args...)
		if code := p.ExitCode(startLimit); code != 0 {
			w.t.Errorf("keb %v ended with %d:\n%s", args, code, p.Output())
		}
		out["keb "+strings.Join(args, " ")] = []byte(p.Output())
	}
	// Add the configuration report of each service.
	for name, p := range w.running {
		s := w.services[p.service]
		check := harness.Spawn(w.t, s.Program(w.t, root), nil, append([]string{"-check-config"}, s.Command...)...)
		_ = check.ExitCode(startLimit) // without the variables: names them
		out["-check-config of "+name] = []byte(check.Output())
	}
	return out
}

// login logs a browser in with a token and with OIDC, and adds the cookies and the code to the canaries.
func (w *world) login() {
	w.t.Helper()
	remember := func(what string, cookies []*http.Cookie) {
		if len(cookies) == 0 {
			w.t.Errorf("%s sets no cookie", what)
		}
		for _, c := range cookies {
			w.canaries.set(func(all harness.Canaries) { all.AddWhole("cookie of "+what, c.Value) })
		}
	}
	body, err := json.Marshal(map[string]string{"token": w.secrets.Read("cli/operator-token")})
	require.NoError(w.t, err)
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://"+w.operator+"/console/login", bytes.NewReader(body))
	require.NoError(w.t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Origin", "http://"+w.operator)
	response, err := w.HTTP.Transport.RoundTrip(request)
	if err != nil || response.Body.Close() != nil || response.StatusCode != http.StatusOK {
		w.t.Fatalf("log in: %v, %v", response, err)
	}
	remember("a login with a token", response.Cookies())

	jar, err := cookiejar.New(nil)
	require.NoError(w.t, err)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	browser := &http.Client{Jar: jar, Transport: transport, Timeout: startLimit, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		for _, name := range []string{"code", "code_verifier"} {
			if value := r.URL.Query().Get(name); value != "" {
				w.canaries.set(func(all harness.Canaries) { all.AddWhole(name+" of OIDC", value) })
			}
		}
		return nil
	}}
	response, err = browser.Get("http://" + w.operator + "/console/login/oidc")
	if err != nil || response.Body.Close() != nil || response.StatusCode != http.StatusOK {
		w.t.Fatalf("log in with OIDC: %v, %v", response, err)
	}
	remember("a login with OIDC", jar.Cookies(&url.URL{Scheme: "http", Host: w.operator, Path: "/"}))
}

// again repeats a request until it succeeds, as platforms do.
func (w *world) again(what string, ask func() error) {
	w.t.Helper()
	testkit.Eventually(w.t, limit, what, func() bool {
		err := ask()
		if err != nil && harness.StatusOf(err) != http.StatusServiceUnavailable && harness.StatusOf(err) != http.StatusUnprocessableEntity {
			w.t.Fatalf("%s: %v", what, err)
		}
		return err == nil
	})
}

// bind creates a binding and adds its token to the canaries.
func (w *world) bind(o *harness.Order, id string) {
	w.t.Helper()
	var b *osbclient.Binding
	w.again("the binding", func() (err error) {
		b, err = w.Platform().Bind(w.t.Context(), o.InstanceID, id, osbclient.Bind{ServiceID: harness.ServiceID, PlanID: o.PlanID})
		return err
	})
	var credentials struct{ Kubeconfig string }
	var k struct {
		Users []struct{ User struct{ Token string } }
	}
	if err := errors.Join(json.Unmarshal(b.Credentials, &credentials), yaml.Unmarshal([]byte(credentials.Kubeconfig), &k)); err != nil || len(k.Users) != 1 {
		w.t.Fatalf("a binding without a kubeconfig: %v", err)
	}
	w.canaries.set(func(c harness.Canaries) { c.AddWhole("token of a binding", k.Users[0].User.Token) })
}

// upgrade upgrades all runtimes, and returns the id of the orchestration.
func (w *world) upgrade(what string) string {
	w.t.Helper()
	body := `{"targets": {"include": [{"target": "all"}]}, "strategy": {"type": "parallel", "schedule": "immediate", "parallel": {"workers": 10}}`
	if what == "kyma" {
		body += `, "kyma": {"version": "2.21.0"}`
	}
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://"+w.operator+"/upgrade/"+what, strings.NewReader(body+"}"))
	require.NoError(w.t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := w.HTTP.Do(request)
	require.NoError(w.t, err)
	defer response.Body.Close()
	var made struct{ OrchestrationID string }
	raw, err := io.ReadAll(response.Body)
	if err := errors.Join(err, json.Unmarshal(raw, &made)); err != nil || response.StatusCode != http.StatusAccepted {
		w.t.Fatalf("upgrade %s: %d, %v: %s", what, response.StatusCode, err, raw)
	}
	testkit.Eventually(w.t, limit, "the end of the upgrade of "+what, func() bool {
		state := harness.Get[struct{ State string }](w.System, "http://"+w.operator+"/orchestrations/"+made.OrchestrationID).State
		return slices.Contains([]string{"succeeded", "failed", "canceled"}, state)
	})
	return made.OrchestrationID
}

// end waits for the end of an operation, with any result.
func (w *world) end(id string) *harness.Operation {
	w.t.Helper()
	return w.Await(id, limit, "the end of operation "+id, (*harness.Operation).Final)
}

func TestSecrets_AllOperations_LeakNone(t *testing.T) {
	testkit.Suite(t, "secrets")
	t.Run("Kyma 2", func(t *testing.T) { everywhere(t, "") })
	t.Run("Kyma 1", func(t *testing.T) { everywhere(t, mustAbs(t, overlays)) })
}

// everywhere runs every type of operation, with systems that repeat secrets in their answers, and searches for secrets everywhere.
func everywhere(t *testing.T, overlays string) {
	t.Helper()
	begun := time.Now()
	w := newWorld(t, overlays)
	w.startAll()
	t.Logf("%d processes after %s", len(w.all), time.Since(begun).Round(time.Second))
	stream := w.follow("http://" + w.operator + "/stream")
	w.login()
	var orders []*harness.Order
	var operations, orchestrations []string
	did := func(o *harness.Order, id string, want osb.State) {
		t.Helper()
		operations = append(operations, id)
		if want == "" {
			t.Logf("%s ended in %s", w.Operation(id).Type, w.end(id).State)
			return
		}
		w.PollEnd(o, id, want, limit)
	}

	// Every call of every step first fails, with secrets in the answer.
	w.echo.set(2)
	azure, trial := w.ordered(harness.Azure(), "azure"), w.ordered(harness.Trial(), "trial")
	orders = append(orders, azure, trial)
	var own *harness.Order
	refusing := []string{"avs", "edp", "director", "provisioner", "gardener", "control-plane"}
	if overlays == "" {
		// Kyma 1 needs clusters of the Provisioner.
		own = w.own("own_cluster")
		orders = append(orders, own)
		refusing = append(refusing, "reconciler", "runtimes")
	} else {
		refusing = append(refusing, "ias", "lms", "azure")
	}
	var ids []string
	for _, o := range orders {
		ids = append(ids, w.Provision(o))
	}
	for i, o := range orders {
		did(o, ids[i], osb.StateSucceeded)
	}
	t.Logf("provisioned after %s", time.Since(begun).Round(time.Second))
	w.bind(azure, "one")
	if _, err := w.Platform().GetBinding(t.Context(), azure.InstanceID, "one"); err != nil {
		t.Error(err)
	}
	w.ordered(azure, "azure, updated")
	did(azure, w.Update(azure, osbclient.Change{Context: azure.Body().Context, Parameters: map[string]any{"machineType": "Standard_D8_v3"}}), osb.StateSucceeded)
	if own != nil {
		did(own, w.Update(own, osbclient.Change{Parameters: map[string]any{"kubeconfig": w.kubeconfig("kubeconfig, updated")}}), osb.StateSucceeded)
	}
	did(trial, w.Update(trial, osbclient.Change{Context: map[string]any{"active": false}}), osb.StateSucceeded)
	w.ordered(trial, "trial, suspended")
	w.UpdateAtOnce(trial, osbclient.Change{Context: trial.Body().Context})
	did(trial, w.Update(trial, osbclient.Change{Context: map[string]any{"active": true}}), osb.StateSucceeded)
	t.Logf("updated after %s", time.Since(begun).Round(time.Second))
	orchestrations = append(orchestrations, w.upgrade("kyma"), w.upgrade("cluster"))
	t.Logf("upgraded after %s", time.Since(begun).Round(time.Second))

	// Systems that reject all calls, with secrets in the answer.
	w.echo.set(0)
	for _, system := range refusing {
		o := w.ordered(harness.Azure(), "azure, refused by "+system)
		orders = append(orders, o)
		w.echo.set(0, system)
		id := w.Provision(o)
		w.Await(id, limit, "a failure because of "+system, func(op *harness.Operation) bool {
			return op.Final() || slices.ContainsFunc(op.Stages, func(s operator.Stage) bool {
				return slices.ContainsFunc(s.Steps, func(s operator.Step) bool { return s.Attempts > 2 && s.Error != nil })
			})
		})
		w.echo.set(0)
		did(o, id, "")
	}
	t.Logf("refused after %s", time.Since(begun).Round(time.Second))

	// Scan while everything exists and operations are in flight.
	made := w.echo.noteMade(t)
	w.echo.set(1)
	last := w.ordered(harness.Azure(), "azure, in flight")
	orders = append(orders, last)
	inFlight := w.Provision(last)
	w.Await(inFlight, limit, "the provisioning to be in progress", func(op *harness.Operation) bool { return op.Cursor > 12 })
	places := w.dump()
	maps.Copy(places, w.answers(orders, operations, orchestrations))
	maps.Copy(places, w.commands(operations, orchestrations))
	did(last, inFlight, osb.StateSucceeded)
	w.again("the unbinding", func() error {
		_, err := w.Platform().Unbind(t.Context(), azure.InstanceID, "one", harness.ServiceID, azure.PlanID)
		if harness.StatusOf(err) == harness.Gone {
			return nil // the clean-up was faster
		}
		return err
	})
	ids = nil
	for _, o := range orders {
		ids = append(ids, w.Deprovision(o))
	}
	for i, o := range orders {
		did(o, ids[i], "")
	}
	t.Logf("deprovisioned after %s", time.Since(begun).Round(time.Second))

	// One operation ends with a failure.
	crashed := w.running["broker"]
	w.crash(crashed)
	places["event stream"] = stream()
	for name, content := range w.dump() {
		places["at the end: "+name] = content
	}
	maps.Copy(places, w.logs())
	stored, asked := w.onTheWire()
	maps.Copy(places, stored)
	places["spans"] = w.traces.Raw()
	found := w.scan(places)
	for _, p := range w.all {
		p.Stop()
	}
	inFiles, read := w.scanFiles()
	for _, f := range append(found, inFiles...) {
		t.Errorf("%s contains the %s in clear text", f.place, f.secret)
	}
	total := 0
	for _, content := range places {
		total += len(content)
	}
	canaries, names := w.canaries.snapshot(), map[string]bool{}
	for _, name := range canaries {
		for _, encoding := range []string{" in base64", " in hex", " in UTF-16", " (bytes)"} {
			name, _, _ = strings.Cut(name, encoding)
		}
		names[name] = true
	}
	w.provenToFind(places)
	if len(asked) == 0 {
		t.Error("the bus delivered no secret: the recorder receives nothing")
	}
	if made == 0 && overlays != "" {
		t.Error("no generated override was found in the systems")
	}
	if len(w.traces.Spans()) < 100 {
		t.Errorf("only %d spans", len(w.traces.Spans()))
	}
	t.Logf("asked and answered with secrets, on no stream: %v", asked)
	t.Logf("answers of external systems that held a secret, by the way: %v", w.echo.leaked)
	fmt.Printf("\n%-58s %d\n%-58s %d\n%-58s %d\n%-58s %d\n%-58s %d\n%-58s %.0f MB\n%-58s %.0f MB\n%-58s %d\n%-58s %s\n\n",
		"operations", len(operations), "orchestrations", len(orchestrations), "secrets looked for", len(names), "pieces of them, in all encodings", len(canaries),
		"places beside files", len(places), "read in places", float64(total)/(1<<20), "read in files of Postgres, NATS, logs", float64(read)/(1<<20),
		"secrets found in the clear", len(found)+len(inFiles), "took", time.Since(begun).Round(time.Second))
}

// crash ends a service as a bug would, with all dumps of the kernel and the Go runtime.
func (w *world) crash(p *process) {
	w.t.Helper()
	found, err := os.FindProcess(p.PID())
	require.NoError(w.t, err)
	require.NoError(w.t, found.Signal(syscall.SIGABRT))
	p.ExitCode(startLimit)
	if !strings.Contains(p.Output(), "goroutine ") {
		w.t.Errorf("%s printed no goroutines", p.service)
	}
}

// provenToFind plants each secret in a copy of each kind of place, in each encoding, and checks that the scan finds it.
func (w *world) provenToFind(places map[string][]byte) {
	w.t.Helper()
	canary := harness.NewCanary()
	pieces := harness.NewCanaries(map[string]harness.Canary{"planted": canary})
	planted := 0
	for place, content := range places {
		for encoding, encode := range encodings {
			at := len(content) / 2
			copied := slices.Concat(content[:at:at], []byte(encode(canary.String())), content[at:])
			if len(pieces.In(copied)) == 0 {
				w.t.Errorf("the secret planted in %s as %s is not found", place, encoding)
			}
			planted++
			// Long places take much time.
			if len(content) > 4<<20 && encoding != "base64" {
				break
			}
		}
	}
	w.t.Logf("%d times planted and found", planted)
}

var encodings = map[string]func(string) string{
	"plain":  func(s string) string { return s },
	"base64": func(s string) string { return base64.StdEncoding.EncodeToString([]byte("x" + s)) },
	"URL":    url.QueryEscape,
	"JSON":   func(s string) string { raw, _ := json.Marshal(s); return string(raw) },
	"hex":    func(s string) string { return fmt.Sprintf("%x", s) },
}

func mustAbs(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	require.NoError(t, err)
	return abs
}
