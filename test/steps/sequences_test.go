package steps_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/kyma-project/keb/libs/event"
)

// act is an operation of a sequence.
type act struct {
	kind event.OperationType
	// change completes the operation; optional.
	change func(op *event.Operation)
	// fails is the step whose calls are answered with 500; empty if the operation must succeed.
	fails string
}

func suspend(op *event.Operation) { op.Temporary = true }

func dry(op *event.Operation) { op.Upgrade.DryRun = true }

// TestPlans_AllOperations_Succeed runs sequences of operations on an instance of each plan. No object may remain at the end.
func TestPlans_AllOperations_Succeed(t *testing.T) {
	t.Parallel()
	sequences := map[string][]act{
		"everything": {
			{kind: event.Update}, {kind: event.UpgradeKyma}, {kind: event.UpgradeCluster}, {kind: event.Update},
		},
		"the same update twice":                  {{kind: event.Update}, {kind: event.Update}},
		"an update after one that failed":        {{kind: event.Update, fails: "Upgrade_Shoot"}, {kind: event.Update}},
		"an update after one that was not ended": {{kind: event.Update, fails: "Check_Runtime"}, {kind: event.Update}},
		"an update after an upgrade that failed": {{kind: event.UpgradeCluster, fails: "Check_Runtime"}, {kind: event.Update}},
		"an upgrade after an update that failed": {{kind: event.Update, fails: "Check_Runtime"}, {kind: event.UpgradeCluster}},
		"an upgrade of the cluster after one that failed": {
			{kind: event.UpgradeCluster, fails: "Upgrade_Cluster"}, {kind: event.UpgradeCluster},
		},
		"an upgrade of Kyma after one that failed": {
			{kind: event.UpgradeKyma, fails: "Apply_Cluster_Configuration"},
			{kind: event.UpgradeKyma},
			{kind: event.UpgradeKyma, fails: "Check_Cluster_Configuration"},
			{kind: event.UpgradeKyma},
		},
		"dry runs and then real ones": {
			{kind: event.UpgradeKyma, change: dry},
			{kind: event.UpgradeKyma},
			{kind: event.UpgradeCluster, change: dry},
			{kind: event.UpgradeCluster},
		},
		"a suspended instance": {
			{kind: event.Deprovision, change: suspend},
			{kind: event.Update},
			{kind: event.UpgradeKyma},
			{kind: event.UpgradeCluster},
			{kind: event.Provision},
			{kind: event.Update},
			{kind: event.UpgradeKyma},
			{kind: event.UpgradeCluster},
		},
		"a suspension after an upgrade whose end failed": {
			{kind: event.UpgradeKyma, fails: "AVS_Restore_Status"},
			{kind: event.Deprovision, change: suspend},
			{kind: event.Provision},
			{kind: event.UpgradeCluster, fails: "AVS_Restore_Status"},
			{kind: event.UpgradeCluster},
		},
	}
	for _, plan := range Plans() {
		for _, kyma1 := range []bool{false, true} {
			if kyma1 && !plan.Kyma1() {
				continue
			}
			there, gone, _ := usual(t, plan, kyma1)
			for _, name := range slices.Sorted(maps.Keys(sequences)) {
				sequence := sequences[name]
				if len(sequence) < 4 && plan.Name != "azure" {
					continue // the long sequences contain all steps
				}
				t.Run(fmt.Sprintf("%s %s Kyma 1 %t", plan.Name, name, kyma1), func(t *testing.T) {
					t.Parallel()
					s := begin(t, kyma1)
					s.succeed(On(event.Provision, plan))
					suspended := false
					for i, a := range sequence {
						op := On(a.kind, plan)
						if a.change != nil {
							a.change(&op)
						}
						s.play(i, op, a)
						switch {
						case op.Temporary:
							suspended = true
							s.holds(gone)
						case op.Type == event.Provision:
							suspended = false
						}
						if !suspended {
							s.holds(there)
							if a.fails != "AVS_Restore_Status" {
								s.watched(i)
							}
						}
					}
					s.succeed(On(event.Deprovision, plan))
					s.holds(gone)
				})
			}
		}
	}
}

func (s *story) play(i int, op event.Operation, a act) {
	s.t.Helper()
	hit := false
	run := s.do(op, func(_ string, c event.StepExecute) (*Fault, bool) {
		if c.Step != a.fails {
			return nil, false
		}
		hit = true
		return &Fault{Status: http.StatusInternalServerError}, false
	})
	status := run.Status()
	if a.fails == "" && (status.State != event.Succeeded || len(status.NotCompleted) > 0) || a.fails == "" && hit {
		s.t.Errorf("%d. %s: %s, not completed %v: %+v", i+1, op.Type, status.State, status.NotCompleted, status.Error)
	}
}

// watched checks that no evaluation is in maintenance.
func (s *story) watched(i int) {
	s.t.Helper()
	for _, o := range s.w.Objects("avs") {
		if o["status"] == "MAINTENANCE" {
			s.t.Errorf("%d. evaluation %v is still in maintenance", i+1, o["id"])
		}
	}
}
