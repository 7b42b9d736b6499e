package contract_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/contract"
	"github.com/kyma-project/keb/libs/worker/contract/contracttest"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == rawProgram {
		os.Exit(runRaw(flaw(os.Args[2])))
	}
	goleak.VerifyTestMain(m)
}

// obedient is a step that does what its parameters say.
type obedient struct{}

func (obedient) Name() string { return "Obey" }

func (obedient) Run(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	var do struct {
		Take   string `json:"take"`
		Fail   bool   `json:"fail"`
		Recall bool   `json:"recall"`
		Extend string `json:"extend"`
	}
	if err := op.Parameters(&do); err != nil {
		return op, 0, err
	}
	if do.Extend != "" {
		d, err := time.ParseDuration(do.Extend)
		if err != nil {
			return op, 0, err
		}
		if _, err := op.ExtendExecution(ctx, d); err != nil {
			return op, 0, err
		}
	}
	if do.Take != "" {
		d, err := time.ParseDuration(do.Take)
		if err != nil {
			return op, 0, err
		}
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return op, 0, ctx.Err()
		}
	}
	if do.Fail {
		return worker.Fail(op, &worker.Error{Component: "obedience", Reason: "told_so", Message: "as told"})
	}
	if do.Recall {
		value, err := op.Recall(ctx, "word")
		if err != nil {
			return op, 0, err
		}
		if string(value) != "a word that nobody may see" {
			return op, 0, errors.New("it is another word")
		}
	}
	var secret struct {
		ClientSecret string `json:"clientsecret"`
	}
	if err := op.ClaimCredentials(ctx, event.CredentialsServiceManager, &secret); err != nil {
		return op, 0, err
	}
	op.Remember("secret", []byte(secret.ClientSecret))
	if err := op.SaveDetails(map[string]string{"did": "it"}); err != nil {
		return op, 0, err
	}
	return op, 0, nil
}

var obeys = contract.Case{
	Name: "obeys", Step: "Obey", Parameters: map[string]any{"fail": false},
	Expect: contract.Expectation{Outcome: event.OutcomeSucceeded, Details: map[string]any{"did": "it"}},
}

var clears = contract.Case{Name: "clears", Step: "Obey", Operation: event.Deprovision, Cleanup: true}

func TestAWorkerOfTheSDKPassesEveryCheck(t *testing.T) {
	t.Parallel()
	testkit.Suite(t, "workers")
	report := contracttest.Steps(t, contract.Config{
		Worker: "obedient", Drain: 15 * time.Second, Concurrency: 4,
		Cases: []contract.Case{
			obeys, clears,
			{Name: "takes its time", Step: "Obey", Parameters: map[string]any{"take": "12s"}, Takes: contract.Duration(12 * time.Second)},
		},
	}, obedient{})
	wantSkipped(t, report, "memory", "frozen") // the worker runs in the process of the test
}

func TestAWorkerOfTheSDKPassesTheChecksThatNeedNoSlowStep(t *testing.T) {
	t.Parallel()
	report := contracttest.Steps(t, contract.Config{
		Worker: "obedient", AckWait: 2 * time.Second, Drain: 5 * time.Second, Concurrency: 4, Commands: 100,
		Cases: []contract.Case{
			obeys, clears,
			{
				Name: "fails", Step: "Obey", Parameters: map[string]any{"fail": true}, Only: true,
				Expect: contract.Expectation{Outcome: event.OutcomeFailed, Component: "obedience", Reason: "told_so"},
			},
			{
				Name: "recalls", Step: "Obey", Parameters: map[string]any{"recall": true}, Only: true,
				Remembered: map[string]string{"word": "a word that nobody may see"}, Expect: contract.Expectation{Outcome: event.OutcomeSucceeded},
			},
		},
	}, obedient{})
	wantSkipped(t, report, "long-step", "time-limit", "cancel", "concurrency", "memory", "frozen")
}

func TestAWorkerThatAsksForMoreTimePasses(t *testing.T) {
	t.Parallel()
	report := contracttest.Steps(t, contract.Config{
		Worker: "obedient", Checks: []string{"registration", "answers", "cases", "time-limit", "late-progress", "more-time"},
		AckWait: 2 * time.Second, Drain: 5 * time.Second, Concurrency: 4, Commands: 100,
		Cases: []contract.Case{
			obeys,
			// Its time limit is two seconds then.
			{Name: "extends", Step: "Obey", Parameters: map[string]any{"take": "5s", "extend": "20s"}, Takes: contract.Duration(6 * time.Second)},
		},
	}, obedient{})
	for _, f := range report.Findings {
		if f.Check == "more-time" && f.Figure == "0 times granted" {
			t.Error("more-time: the worker has not asked for more time")
		}
		if f.Check == "time-limit" && !strings.HasPrefix(f.Figure, "succeeded") {
			t.Errorf("time-limit: %s, want succeeded: the step was given more time", f.Figure)
		}
	}
}

// wantSkipped fails the test unless all checks passed but these, which were skipped.
func wantSkipped(t *testing.T, report *contract.Report, want ...string) {
	t.Helper()
	var skipped []string
	for _, f := range report.Findings {
		if f.Status == contract.Skipped {
			skipped = append(skipped, f.Check)
		}
	}
	if diff := cmp.Diff(want, skipped); diff != "" || report.Count(contract.Passed) != len(contract.Names())-len(want) {
		t.Errorf("%d checks passed; skipped (-want +got):\n%s", report.Count(contract.Passed), diff)
	}
}
