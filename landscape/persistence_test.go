package landscape_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/landscape"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestLandscape_Reopened_KeepsData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := newClock()
	w := open(t, dir, c)
	w.must(200, "POST", evaluations, newEvaluation("K8S-AZR-Kyma-int-n"), w.avsToken())
	w.must(201, "POST", "/edp/namespaces/kyma/dataTenants", map[string]any{"name": "s", "environment": "dev", "secret": "c2Rldg=="}, w.clientToken("/edp/oauth2/token", "edp-namespace;kyma"))
	w.must(200, "POST", clusters, w.cluster("2.20.0"))
	w.must(200, "POST", tenants, newTenant("ga1", "eu"), lmsToken)
	w.must(201, "PUT", azureGroups+"/k1"+version, map[string]any{"location": "westeurope", "tags": tags("1")}, w.azureToken())
	w.must(202, "DELETE", azureGroups+"/k1"+version, nil, w.azureToken())
	op, _ := w.ask(provisionQuery, map[string]any{"config": runtimeInput("i-1", "c-1")})
	w.must(200, "PUT", "/admin/systems/ias", map[string]any{"outage": true})
	before := w.state()
	w.close()

	w = open(t, dir, c)
	if diff := cmp.Diff(before, w.state()); diff != "" {
		t.Errorf("after the reopen (-before +after):\n%s", diff)
	}
	w.must(503, "GET", "/ias/service/company/global", nil, basic("keb", "keb"))

	// The operation progresses with the clock, without requests in between.
	w.close()
	c.Advance(clusterTime)
	w = open(t, dir, c)
	if got := text(t, w.operation(text(t, op, "id")), "state"); got != "Succeeded" {
		t.Errorf("state after the reopen is %s", got)
	}
	if now, ever := w.held("azure", "resourceGroup"); now != 0 || ever != 1 {
		t.Errorf("Azure holds %d of %d resource groups after the reopen, want 0 of 1", now, ever)
	}
	next := w.must(200, "POST", evaluations, newEvaluation("K8S-AZR-Kyma-int-m"), w.avsToken())
	if next["id"] != 2.0 {
		t.Errorf("the next evaluation has id %v, want 2", next["id"])
	}
}

func TestNew_AfterCrash_UpdatesOtherSystems(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := newClock()
	w := open(t, dir, c)
	w.ask(provisionQuery, map[string]any{"config": runtimeInput("i-1", "c-1")})
	w.close()
	// This simulates a crash between the Provisioner's write and the others.
	for _, name := range []string{"director", "gardener"} {
		require.NoError(t, os.Remove(filepath.Join(dir, name+".jsonl")))
	}
	w = open(t, dir, c)
	if found, shoots := w.directed("i-1"), w.shoots(); len(found) != 1 || len(shoots) != 1 {
		t.Errorf("Director has %v, Gardener has %v", found, shoots)
	}
}

func TestNew_DataFolderInUse_ReturnsErrInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, dir, newClock())
	if _, err := landscape.New(landscape.Config{DataDir: dir}, landscape.Deps{}); !errors.Is(err, landscape.ErrInUse) {
		t.Errorf("a second user gets %v", err)
	}
	w.close()
	open(t, dir, newClock())
}

func TestNew_InvalidConfig_NamesField(t *testing.T) {
	t.Parallel()
	_, err := landscape.New(landscape.Config{ClusterTime: -1, ReconcileTime: -1, CleanTime: -1, Bindings: -1, ExternalURL: "here"}, landscape.Deps{})
	for _, want := range []string{"cluster time", "reconcile time", "clean time", "bindings", "external URL"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}

// state returns the admin API's view of all systems, without the calls.
func (w *world) state() map[string]any {
	w.t.Helper()
	out := map[string]any{}
	systems := w.must(200, "GET", "/admin/systems", nil)
	for _, s := range at(w.t, systems, "data").([]any) {
		name := text(w.t, s, "name")
		delete(s.(map[string]any), "calls")
		out[name] = s
		out[name+" objects"] = w.must(200, "GET", "/admin/systems/"+name+"/objects", nil)
	}
	return out
}

// runChild is the process that the test with SIGKILL kills: it prints its URL and serves.
func runChild(dir string) {
	l, err := landscape.New(landscape.Config{DataDir: dir, ClusterTime: time.Hour, Bindings: 1}, landscape.Deps{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(httptest.NewServer(l.Handler()).URL)
	select {}
}

func TestLandscape_SIGKILL_KeepsConfirmedWrites(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childEnv+"="+dir)
	child.Stderr = os.Stderr
	stdout, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	url, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	w := &world{t: t, url: strings.TrimSpace(url), http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}}
	defer w.http.CloseIdleConnections()

	// Clients write until the process is killed; every confirmed write must exist afterwards.
	var answered sync.Map
	enough := make(chan struct{})
	stop := sync.OnceFunc(func() { close(enough) })
	var wg sync.WaitGroup
	token := w.avsToken()
	for worker := range 8 {
		wg.Go(func() {
			defer stop()
			for i := 0; ; i++ {
				name := fmt.Sprintf("K8S-AZR-Kyma-int-%d-%d", worker, i)
				if w.try("POST", evaluations, newEvaluation(name), token) != 200 {
					return
				}
				answered.Store(name, true)
				if worker == 0 && i == 50 {
					stop()
				}
			}
		})
	}
	<-enough
	require.NoError(t, child.Process.Kill())
	wg.Wait()
	_ = child.Wait() // says that it was killed

	w = open(t, dir, testkit.NewClock(time.Now()))
	got := w.must(200, "GET", "/admin/systems/avs/objects", nil)
	there := map[string]int{}
	for _, o := range at(t, got, "data").([]any) {
		there[text(t, o, "name")]++
	}
	n := 0
	answered.Range(func(name, _ any) bool {
		n++
		if there[name.(string)] != 1 {
			t.Errorf("%s was answered and is there %d times", name, there[name.(string)])
		}
		return true
	})
	if n < 50 {
		t.Errorf("only %d requests were answered", n)
	}
}

// try returns the status of a call, or 0 without an answer.
func (w *world) try(method, path string, body any, o option) int {
	raw, err := json.Marshal(body)
	if err != nil {
		return 0
	}
	r, err := http.NewRequestWithContext(context.Background(), method, w.url+path, bytes.NewReader(raw))
	if err != nil {
		return 0
	}
	r.Header.Set("Content-Type", "application/json")
	o(r)
	resp, err := w.http.Do(r)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
