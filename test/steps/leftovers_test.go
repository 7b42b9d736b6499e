package steps_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// story is a sequence of operations on one instance.
type story struct {
	t    *testing.T
	w    *World
	set  process.Set
	left Left
	// kyma1 adds the overlay for Kyma 1 to the processes.
	kyma1 bool
}

func begin(t *testing.T, kyma1 bool) *story {
	t.Helper()
	w := NewWorld(t)
	if kyma1 {
		w.UseDirector()
	}
	return &story{t: t, w: w, set: Processes(t, kyma1), kyma1: kyma1}
}

func (s *story) do(op event.Operation, hook Hook) *Run {
	s.t.Helper()
	credentials := Credentials()
	credentials[event.CredentialsKubeconfig] = map[string]string{"kubeconfig": s.w.ControlPlane()}
	spoilt := false
	run := s.w.Do(s.set[op.Type], op, s.left, credentials, func(worker string, c event.StepExecute) (f *Fault, lose bool) {
		if hook != nil {
			f, lose = hook(worker, c)
		}
		if spoilt && f == nil {
			s.w.Restart()
		}
		spoilt = f != nil
		return f, lose
	})
	s.w.Restart()
	s.w.Pass(time.Hour) // background work in the control plane has ended
	s.left = run.Left()
	return run
}

// succeed runs an operation that must succeed without skipped steps.
func (s *story) succeed(op event.Operation) *Run {
	s.t.Helper()
	run := s.do(op, nil)
	if status := run.Status(); status.State != event.Succeeded || len(status.NotCompleted) > 0 {
		s.t.Errorf("%s: %s, not completed %v: %+v", op.Type, status.State, status.NotCompleted, status.Error)
	}
	return run
}

// holds compares the objects of the external systems.
func (s *story) holds(want map[string]int64) {
	s.t.Helper()
	got := held(s.w)
	if s.kyma1 {
		// An order of 2020 contains no administrators; the cluster gets them with its first update or upgrade.
		want = maps.Clone(want)
		delete(want, "runtimes/ClusterRoleBinding")
		delete(got, "runtimes/ClusterRoleBinding")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("the external systems hold (-want +got):\n%s", diff)
	}
}

// held returns the objects of the external systems, except those that are never removed: logs, the shared LMS tenant of an account, and the
// ConfigMap cluster-info. An own cluster (here the control plane) gets that ConfigMap with its first new credentials.
func held(w *World) map[string]int64 {
	h := w.Held()
	for _, o := range w.Objects("control-plane") {
		if metadata, _ := o["metadata"].(map[string]any); o["kind"] == "ConfigMap" && metadata["name"] == "cluster-info" {
			h["control-plane/ConfigMap"]--
		}
	}
	for _, kind := range []string{"provisioner/operation", "spc/event", "lms/certificate", "lms/tenant"} {
		delete(h, kind)
	}
	return h
}

// usual returns the objects after a provisioning without faults, those after its deprovisioning, and the number of calls.
func usual(t *testing.T, plan Plan, kyma1 bool) (there, gone map[string]int64, calls map[string]int) {
	t.Helper()
	s := begin(t, kyma1)
	run := s.succeed(On(event.Provision, plan))
	there, calls = held(s.w), map[string]int{}
	for _, x := range run.Executions {
		calls[x.Command.Step] = max(calls[x.Command.Step], len(x.Calls))
	}
	s.succeed(On(event.Deprovision, plan))
	return there, held(s.w), calls
}

// givenUp permits that many calls of a step, and then answers every call of it with 500.
func givenUp(step string, calls int) Hook {
	killed := calls == 0
	return func(_ string, c event.StepExecute) (*Fault, bool) {
		switch {
		case c.Step != step:
			return nil, false
		case !killed:
			killed = true
			return &Fault{KillAfter: calls}, false
		}
		// The test does not wait for steps with a budget of hours: an operator cancels the operation.
		return &Fault{Status: http.StatusInternalServerError, Cancel: strings.Contains(c.Step, "Runtime")}, false
	}
}

// cancelled permits that many calls of a step, and then cancels the operation.
func cancelled(step string, calls int) Hook {
	return func(_ string, c event.StepExecute) (*Fault, bool) {
		if c.Step != step {
			return nil, false
		}
		f := Fault{KillAfter: calls, Cancel: true}
		if calls == 0 {
			f.Status = http.StatusInternalServerError
		}
		return &f, false
	}
}

func TestDeprovision_UnfinishedProvisioning_RemovesAll(t *testing.T) {
	t.Parallel()
	for _, kyma1 := range []bool{false, true} {
		for _, plan := range Plans() {
			if kyma1 && plan.Name != "azure" && plan.Name != "trial" {
				continue
			}
			t.Run(fmt.Sprintf("%s Kyma 1 %t", plan.Name, kyma1), func(t *testing.T) {
				t.Parallel()
				_, gone, calls := usual(t, plan, kyma1)
				for _, step := range slices.Sorted(maps.Keys(calls)) {
					n := calls[step]
					if plan.Name != "azure" && step != "Create_Runtime_Without_Kyma" {
						n = 0
					}
					for k := range n + 1 {
						t.Run(fmt.Sprint(step, " after call ", k), func(t *testing.T) {
							s := begin(t, kyma1)
							run := s.do(On(event.Provision, plan), cancelled(step, k))
							if state := run.Status().State; state != event.Cancelled {
								t.Fatalf("the provisioning is %s", state)
							}
							s.succeed(On(event.Deprovision, plan))
							want := maps.Clone(gone)
							if orphan, ok := orphans[step]; ok && k > 0 {
								want[orphan.kind] += orphan.n
							}
							s.holds(want)
						})
					}
				}
			})
		}
	}
}

// removing returns the steps of a deprovisioning that call external systems.
func removing(t *testing.T, plan Plan, kyma1 bool) []string {
	t.Helper()
	s := begin(t, kyma1)
	s.succeed(On(event.Provision, plan))
	var steps []string
	for _, x := range s.succeed(On(event.Deprovision, plan)).Executions {
		if len(x.Calls) > 0 && !slices.Contains(steps, x.Command.Step) {
			steps = append(steps, x.Command.Step)
		}
	}
	return steps
}

func TestDeprovision_Repeated_RunsOnlyOpenSteps(t *testing.T) {
	t.Parallel()
	for _, kyma1 := range []bool{false, true} {
		plan := Plans()[0]
		_, gone, _ := usual(t, plan, kyma1)
		for _, step := range removing(t, plan, kyma1) {
			for k := range 4 {
				t.Run(fmt.Sprintf("%s after call %d Kyma 1 %t", step, k, kyma1), func(t *testing.T) {
					t.Parallel()
					s := begin(t, kyma1)
					s.succeed(On(event.Provision, plan))
					first := s.do(On(event.Deprovision, plan), givenUp(step, k))
					done := first.Completed()
					if status := first.Status(); status.State == event.Succeeded && len(status.NotCompleted) == 0 {
						return // the step ended after fewer calls
					}
					second := s.succeed(On(event.Deprovision, plan))
					for _, x := range second.Executions {
						if slices.Contains(done, x.Command.Step) {
							t.Errorf("%s ran again", x.Command.Step)
						}
					}
					s.holds(gone)
				})
			}
		}
	}
}

func TestUnsuspend_IncompleteSuspension_Succeeds(t *testing.T) {
	t.Parallel()
	for _, kyma1 := range []bool{false, true} {
		for _, plan := range Plans() {
			if plan.Name != "azure" && plan.Name != "trial" {
				continue
			}
			there, gone, _ := usual(t, plan, kyma1)
			for _, step := range removing(t, plan, kyma1) {
				for k := range 3 {
					t.Run(fmt.Sprintf("%s %s after call %d Kyma 1 %t", plan.Name, step, k, kyma1), func(t *testing.T) {
						t.Parallel()
						s := begin(t, kyma1)
						s.succeed(On(event.Provision, plan))
						suspend := On(event.Deprovision, plan)
						suspend.Temporary = true
						s.do(suspend, givenUp(step, k))
						s.succeed(On(event.Provision, plan))
						s.holds(there)
						s.succeed(On(event.Deprovision, plan))
						s.holds(gone)
					})
				}
			}
		}
	}
}
