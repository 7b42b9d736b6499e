package census

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/liveness"
	"github.com/kyma-project/keb/services/orchestrator/internal/ramp"
)

// ramping has a worker with ordinary and ramped replicas, and no processes.
type ramping struct {
	Definitions
}

func (ramping) Set() process.Set { return nil }

func (ramping) Serves(string, string) bool { return true }

func (ramping) Workers() []liveness.Worker {
	return []liveness.Worker{{Name: "edp", Replicas: 3, Ramped: map[string]int{"1.9.0": 1}}}
}

func TestWorkers_RampWithoutReplicas_IsZero(t *testing.T) {
	t.Parallel()
	var ramps []ramp.Ramp
	c := &Census{deps: Deps{Definitions: ramping{}, Workers: ramping{}, Ramps: func() []ramp.Ramp { return ramps }, Log: slog.New(slog.DiscardHandler)}}
	const head = "# HELP keb_worker_ramp_replicas Live ramped replicas with the version of a ramp.\n# TYPE keb_worker_ramp_replicas gauge\n"
	for version, want := range map[string]string{"1.9.0": "1", "2.0.0": "0", "": ""} {
		ramps, want = []ramp.Ramp{{Worker: "edp", Version: version}}, head+`keb_worker_ramp_replicas{version="`+version+`",worker="edp"} `+want+"\n"
		if version == "" {
			ramps, want = nil, ""
		}
		if err := testutil.CollectAndCompare(newWorkers(c), strings.NewReader(want), "keb_worker_ramp_replicas"); err != nil {
			t.Error(err)
		}
	}
}
