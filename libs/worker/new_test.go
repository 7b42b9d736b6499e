package worker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/worker"
)

func TestNew_InvalidArguments_AllAreReported(t *testing.T) {
	t.Parallel()
	good := worker.Config{Name: "avs"}
	deps := worker.Deps{Bus: &bus.Bus{}}
	for name, c := range map[string]struct {
		cfg   worker.Config
		deps  worker.Deps
		steps []worker.Step
		want  []string
	}{
		"no steps":       {good, deps, nil, []string{"no steps"}},
		"no bus":         {good, worker.Deps{}, []worker.Step{noop("A")}, []string{"Bus is missing"}},
		"a nil step":     {good, deps, []worker.Step{nil}, []string{"a step is nil"}},
		"a step twice":   {good, deps, []worker.Step{noop("A"), noop("A")}, []string{`step "A" is duplicated`}},
		"bad step names": {good, deps, []worker.Step{noop("a.b"), noop("")}, []string{`step name "a.b"`, `step name ""`}},
		"bad config": {
			worker.Config{Name: "A vs", Concurrency: -1, RateLimit: -1, DrainTimeout: -time.Second},
			deps,
			[]worker.Step{noop("A")},
			[]string{`worker name "A vs"`, "concurrency -1", "rate limit -1", "drain timeout -1s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := worker.New(c.cfg, c.deps, c.steps...)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
}

func TestNew_SameRegistry_SharesMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	for _, name := range []string{"avs", "edp", "avs"} {
		deps := worker.Deps{Bus: &bus.Bus{}, Registerer: registry}
		if _, err := worker.New(worker.Config{Name: name}, deps, noop("A")); err != nil {
			t.Errorf("worker %s: %v", name, err)
		}
	}
}
