package compose

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/processes"
)

// An operation waits for the worker of each of its steps; one that does not come up would hold every operation of the type for ever.
func TestCompose_EachStep_HasWorker(t *testing.T) {
	t.Parallel()
	set, err := process.Load(processes.FS)
	require.NoError(t, err)
	up := []string{process.WorkerOrchestrator, "broker"}
	for name, s := range read(t).Services {
		if len(s.Profiles) == 0 {
			up = append(up, name)
		}
	}
	for _, worker := range set.Workers() {
		if !slices.Contains(up, worker) && !slices.Contains(up, "worker-"+worker) {
			t.Errorf("worker %s has steps, and \"docker compose up\" does not start it", worker)
		}
	}
}
