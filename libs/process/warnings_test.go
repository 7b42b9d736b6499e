package process_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/process"
)

func TestWarnings(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{
		"provision.yaml": {Data: []byte(`
operation: provision
timeout: 2h
stages:
  - {name: start, steps: [{name: Starting, worker: orchestrator}]}
  - {name: edp, steps: [{name: EDP_Registration, worker: edp, retry: {timeout: 30m}}]}
  - {name: avs, steps: [{name: AVS, worker: avs, retry: {timeout: 30m}}]}
`)},
		"deprovision.yaml": {Data: []byte(`
operation: deprovision
stages:
  - {name: edp, steps: [{name: EDP_Deregistration, worker: edp}]}
  - {name: other, steps: [{name: Goodbye, worker: other}]}
  - {name: remove, steps: [{name: Remove_Instance, worker: broker}]}
`)},
	}
	before, err := process.Load(files)
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		changes string
		want    []string
	}{
		"no change":       {"", nil},
		"harmless change": {`{operation: provision, changes: [{retime: {step: AVS, retry: {timeout: 1h}}}]}`, nil},
		"built-in step": {
			`{operation: provision, changes: [{disable: Starting}]}`,
			[]string{"provision: the built-in step Starting is disabled; nothing else records that the operation has begun"},
		},
		"external object stays": {
			`{operation: deprovision, changes: [{disable: EDP_Deregistration}]}`,
			[]string{"deprovision: the step EDP_Deregistration is disabled, but other processes still have steps of the worker edp; what these create stays behind"},
		},
		"nothing was created": {`{operation: deprovision, changes: [{disable: Goodbye}]}`, nil},
		"not created any more": {
			"{operation: deprovision, changes: [{disable: EDP_Deregistration}]}\n---\n{operation: provision, changes: [{disable: EDP_Registration}]}", nil,
		},
		"instance stays": {
			`{operation: deprovision, changes: [{disable: Remove_Instance}]}`,
			[]string{"deprovision: the step Remove_Instance is disabled; a deprovisioned instance is never removed, and its id cannot be ordered again"},
		},
		"budgets": {
			`{operation: provision, changes: [{retime: {step: AVS, retry: {timeout: 110m}}}]}`,
			[]string{"provision: the budgets of the steps add up to 2h20m0s, but the operation has only 2h0m0s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overlay := fstest.MapFS{}
			if tt.changes != "" {
				overlay["overlay.yaml"] = &fstest.MapFile{Data: []byte(strings.TrimSpace(tt.changes))}
			}
			after, err := process.Load(files, overlay)
			require.NoError(t, err)
			if diff := cmp.Diff(tt.want, process.Warnings(before, after)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
