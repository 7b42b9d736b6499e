package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/libs/testkit"
)

type hello struct{}

func (hello) Name() string { return "Hello" }

func (hello) Run(_ context.Context, op Operation, _ *slog.Logger) (Operation, time.Duration, error) {
	op.Remember("token", []byte("x"))
	return op, 0, nil
}

func hellos(_ context.Context, env Env) ([]Step, error) {
	greetings := prometheus.NewCounter(prometheus.CounterOpts{Name: "hello_greetings_total", Help: "Greetings."})
	return []Step{hello{}}, env.Registerer.Register(greetings)
}

const (
	stageKey = "k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	canary   = "s3cret-canary"
)

func TestCheckConfig_Valid_PrintsNoSecrets(t *testing.T) {
	t.Setenv("KEB_NATS_URL", "nats://me:"+canary+"@nats.example:4222,nats://two:4222")
	t.Setenv("KEB_NATS_PASSWORD", canary)
	t.Setenv("KEB_STAGE_KEYS", stageKey)
	t.Setenv("KEB_WORKER_CONCURRENCY", "7")
	var out bytes.Buffer
	require.NoError(t, single(Program{Name: "hello", Version: "1.0.0", Steps: hellos}).Run(t.Context(), testkit.Logger(t), []string{"-check-config"}, &out))
	for _, want := range []string{`"worker": "hello"`, `"Hello"`, `nats://***@nats.example:4222,nats://two:4222`, `"concurrency": 7`, `"drainTimeout": "20s"`, `"stageKeys": "(set)"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %s:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), canary) || strings.Contains(out.String(), stageKey) {
		t.Errorf("output holds a secret:\n%s", out.String())
	}
}

func TestMain_InvalidConfiguration_FailsBeforeStart(t *testing.T) {
	for name, c := range map[string]struct {
		env   map[string]string
		args  []string
		steps func(context.Context, Env) ([]Step, error)
		want  []string
	}{
		"number":     {env: map[string]string{"KEB_WORKER_CONCURRENCY": "many"}, want: []string{"KEB_WORKER_CONCURRENCY"}},
		"range":      {env: map[string]string{"KEB_WORKER_RATE_LIMIT": "-2"}, want: []string{"rate limit -2"}},
		"keys":       {env: map[string]string{"KEB_STAGE_KEYS": canary}, want: []string{"KEB_STAGE_KEYS"}},
		"two ways":   {env: map[string]string{"KEB_NATS_PASSWORD": canary, "KEB_NATS_PASSWORD_FILE": "main_test.go"}, want: []string{"exclude each other"}},
		"no file":    {env: map[string]string{"KEB_STAGE_KEYS_FILE": "no-such-file"}, want: []string{"KEB_STAGE_KEYS_FILE"}},
		"argument":   {args: []string{"run"}, want: []string{`argument "run"`}},
		"step error": {steps: func(context.Context, Env) ([]Step, error) { return nil, errors.New("no url") }, want: []string{"make steps: no url"}},
		"no steps":   {steps: func(context.Context, Env) ([]Step, error) { return nil, nil }, want: []string{"no steps"}},
	} {
		t.Run(name, func(t *testing.T) {
			for k, v := range c.env {
				t.Setenv(k, v)
			}
			steps := c.steps
			if steps == nil {
				steps = hellos
			}
			args := c.args
			if args == nil {
				args = []string{"-check-config"}
			}
			err := single(Program{Name: "hello", Version: "1.0.0", Steps: steps}).Run(t.Context(), testkit.Logger(t), args, io.Discard)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
			if strings.Contains(err.Error(), canary) {
				t.Errorf("error holds a secret: %v", err)
			}
		})
	}
}

func TestMain_Started_ServesStepsMetricsHealth(t *testing.T) {
	server := testkit.NATS(t)
	ln := testkit.Addr(t)
	t.Setenv("KEB_NATS_URL", server.URL())
	t.Setenv("KEB_STAGE_KEYS", stageKey)
	t.Setenv("KEB_METRICS_ADDR", ln)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- single(Program{Name: "hello", Version: "1.0.0", Steps: hellos}).Run(ctx, testkit.Logger(t), nil, io.Discard)
	}()

	b, err := bus.Connect(t.Context(), bus.Config{URL: server.URL()}, bus.Deps{})
	require.NoError(t, err)
	defer b.Close()
	require.NoError(t, b.EnsureAll(t.Context(), []event.ConsumerSpec{event.CommandsConsumer("hello")}))
	e, err := bus.New(event.TypeStepExecute, "1/1", event.SourceOrchestrator, "1", time.Now(), event.StepExecute{
		Operation: event.Operation{ID: "1", Type: event.Provision, InstanceID: "i"},
		Stage:     "s", Step: "Hello", Cursor: 1, Dispatch: 1, StageAttempt: 1, StepAttempt: 1,
		ExecuteBefore: time.Now().Add(time.Minute),
	})
	require.NoError(t, err)
	require.NoError(t, b.Publish(t.Context(), bus.Message{Subject: event.CommandSubject("hello", "Hello"), Event: e}))
	testkit.Eventually(t, time.Minute, "the result is there", func() bool {
		s, err := b.JetStream().Stream(t.Context(), string(event.StreamResults))
		return err == nil && s.CachedInfo().State.Msgs == 1
	})
	body := fetch(t, "http://"+ln+"/metrics")
	for _, want := range []string{`keb_worker_steps_total{outcome="succeeded",step="Hello",worker="hello"} 1`, "hello_greetings_total 0"} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %s:\n%s", want, body)
		}
	}
	var ready struct{ Status string }
	if err := json.Unmarshal([]byte(fetch(t, "http://"+ln+"/readyz")), &ready); err != nil || ready.Status != "ok" {
		t.Errorf("ready: %+v, %v", ready, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("main: %v", err)
	}
}

// workers is a binary with several programs.
func workers() service.Program[environment] {
	steps := func(context.Context, Env) ([]Step, error) { return []Step{hello{}}, nil }
	broken := func(context.Context, Env) ([]Step, error) { return nil, errors.New("no url") }
	return several("step-worker", []Program{
		{Name: "hello", Version: "1.0.0", Steps: steps}, {Name: "good-bye", Version: "1.0.0", Steps: steps}, {Name: "broken", Version: "1.0.0", Steps: broken},
	})
}

func TestMainOf_Arguments_NameWorkers(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "no worker given; allowed: hello, good-bye, broken"},
		{[]string{"helo"}, `unknown worker "helo"; allowed: hello, good-bye, broken`},
		{[]string{"hello", "hello"}, `worker "hello" is duplicated`},
		{[]string{"-check-config", "hello", "broken"}, "worker broken: make steps: no url"},
	} {
		err := workers().Run(t.Context(), testkit.Logger(t), tt.args, io.Discard)
		require.ErrorContains(t, err, tt.want)
	}
}

func TestMainOf_SeveralWorkers_HaveTheirOwnUsers(t *testing.T) {
	args := []string{"-check-config", "hello", "good-bye"}
	t.Setenv("KEB_NATS_PASSWORD_WORKER_HELLO", canary)
	t.Setenv("KEB_NATS_PASSWORD_WORKER_GOOD_BYE_FILE", "main_test.go")
	var out bytes.Buffer
	require.NoError(t, workers().Run(t.Context(), testkit.Logger(t), args, &out))
	for _, want := range []string{`"natsUser": "worker-hello"`, `"natsUser": "worker-good-bye"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %s:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), canary) {
		t.Errorf("output holds a secret:\n%s", out.String())
	}
	t.Setenv("KEB_NATS_USER", "worker-hello")
	err := workers().Run(t.Context(), testkit.Logger(t), args, io.Discard)
	require.ErrorContains(t, err, "KEB_NATS_USER and KEB_NATS_PASSWORD are only allowed with one worker: with several workers, set KEB_NATS_PASSWORD_WORKER_HELLO")
}

func TestMainOf_SeveralWorkers_AreReady(t *testing.T) {
	server := testkit.NATS(t)
	addr := testkit.Addr(t)
	t.Setenv("KEB_NATS_URL", server.URL())
	t.Setenv("KEB_METRICS_ADDR", addr)
	b, err := bus.Connect(t.Context(), bus.Config{URL: server.URL()}, bus.Deps{})
	require.NoError(t, err)
	defer b.Close()
	require.NoError(t, b.EnsureAll(t.Context(), []event.ConsumerSpec{event.CommandsConsumer("hello"), event.CommandsConsumer("good-bye")}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- workers().Run(ctx, testkit.Logger(t), []string{"hello", "good-bye"}, io.Discard) }()
	var ready struct {
		Status string
		Checks map[string]string
	}
	testkit.Eventually(t, time.Minute, "metrics are served", func() bool {
		c, err := net.Dial("tcp", addr)
		return err == nil && c.Close() == nil
	})
	require.NoError(t, json.Unmarshal([]byte(fetch(t, "http://"+addr+"/readyz")), &ready))
	if ready.Status != "ok" || ready.Checks["nats of hello"] != "ok" || ready.Checks["nats of good-bye"] != "ok" {
		t.Errorf("ready: %+v", ready)
	}
	body := fetch(t, "http://"+addr+"/metrics")
	for _, want := range []string{`keb_worker_concurrency{worker="hello"} 32`, `keb_worker_concurrency{worker="good-bye"} 32`} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %s:\n%s", want, body)
		}
	}
	cancel()
	require.NoError(t, <-ended)
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, errors.Join(err, response.Body.Close()))
	return string(body)
}
