package processes_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/processes"
)

// The contract cleans the runtime in every deprovisioning. The overlay restricts it to the conditions of the original.
func TestProcesses_BTPCleanup_RunsByConditions(t *testing.T) {
	t.Parallel()
	limited, err := process.Load(processes.FS, process.Named("examples", os.DirFS("../../../examples/btp-cleanup-of-trials")))
	require.NoError(t, err)
	sm := []string{event.CredentialsServiceManager}
	for name, test := range map[string]struct {
		op            event.Operation
		usual, within bool
	}{
		"suspended trial":    {event.Operation{Plan: event.Plan{Name: "trial"}, Temporary: true, Credentials: sm}, true, true},
		"deleted trial":      {event.Operation{Plan: event.Plan{Name: "trial"}, Credentials: sm}, true, false},
		"suspended instance": {event.Operation{Plan: event.Plan{Name: "azure"}, Temporary: true, Credentials: sm}, true, false},
		"suspended free":     {event.Operation{Plan: event.Plan{Name: "free"}, Temporary: true, Credentials: sm}, true, false},
		"deleted instance":   {event.Operation{Plan: event.Plan{Name: "azure"}, Credentials: sm}, true, false},
		"deleted account":    {event.Operation{Plan: event.Plan{Name: "azure"}, UserAgent: "accountcleanup-job", Credentials: sm}, true, true},
		"own cluster":        {event.Operation{Plan: event.Plan{Name: "own_cluster"}, Credentials: sm}, true, false},
		"no credentials":     {event.Operation{Plan: event.Plan{Name: "azure"}}, false, false},
	} {
		test.op.Type = event.Deprovision
		for set, want := range map[*process.Process]bool{load(t)[event.Deprovision]: test.usual, limited[event.Deprovision]: test.within} {
			i, j, ok := set.Find("BTPOperator_Cleanup")
			if !ok {
				t.Fatal("there is no BTPOperator_Cleanup")
			}
			runs, err := set.Stages[i].Steps[j].Runs(&process.Input{Operation: &test.op})
			if err != nil || runs != want {
				t.Errorf("%s: runs %t, %v, want %t", name, runs, err, want)
			}
		}
	}
}
