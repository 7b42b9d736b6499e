package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/workertest"
)

func TestOverrides_SeveralSteps_AreMerged(t *testing.T) {
	t.Parallel()
	set := func(name string, domain string) worker.Step {
		return stepFunc{name: name, run: plain(func(_ context.Context, op operation) (operation, time.Duration, error) {
			op.SetOverrides("", []worker.Override{{Key: "global.domain", Value: domain}})
			op.SetOverrides("btp-operator", []worker.Override{
				{Key: "b." + name, Value: "2", Secret: true}, {Key: "a." + name, Value: "1"},
			})
			return op, 0, nil
		})}
	}
	op := workertest.Operation{}
	op = workertest.Run(t, set("Second_By_Name", "first.example.com"), op).Then()
	op = workertest.Run(t, set("First_By_Name", "second.example.com"), op).Then()

	var got []worker.ComponentOverrides
	workertest.Run(t, step(func(ctx context.Context, op operation) (_ operation, _ time.Duration, err error) {
		got, err = op.Overrides(ctx)
		return op, 0, err
	}), op)
	want := []worker.ComponentOverrides{
		{Component: "", Entries: []worker.Override{{Key: "global.domain", Value: "second.example.com"}}},
		{Component: "btp-operator", Entries: []worker.Override{
			{Key: "a.First_By_Name", Value: "1"},
			{Key: "a.Second_By_Name", Value: "1"},
			{Key: "b.First_By_Name", Value: "2", Secret: true},
			{Key: "b.Second_By_Name", Value: "2", Secret: true},
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("overrides of the stage (-want +got):\n%s", diff)
	}
}

func TestOverrides_RepeatedStep_ReplacesItsOwn(t *testing.T) {
	t.Parallel()
	set := func(key string) worker.Step {
		return step(func(ctx context.Context, op operation) (operation, time.Duration, error) {
			op.SetOverrides("c", []worker.Override{{Key: key, Value: "v"}})
			own, err := op.Overrides(ctx)
			if err != nil || len(own) != 1 || len(own[0].Entries) != 1 || own[0].Entries[0].Key != key {
				t.Errorf("overrides within the step: %+v (%v), want only %q", own, err, key)
			}
			return op, 0, err
		})
	}
	op := workertest.Run(t, set("old"), workertest.Operation{}).Then()
	r := workertest.Run(t, set("new"), op)
	want := []worker.ComponentOverrides{{Component: "c", Entries: []worker.Override{{Key: "new", Value: "v"}}}}
	if diff := cmp.Diff(want, r.Overrides); diff != "" {
		t.Errorf("overrides (-want +got):\n%s", diff)
	}
}

func TestStageMemory_UnfinishedStep_WritesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end  func(op operation) (operation, time.Duration, error)
		kept bool
	}{
		"done":    {func(op operation) (operation, time.Duration, error) { return op, 0, nil }, true},
		"skipped": {func(op operation) (operation, time.Duration, error) { return worker.Skip(op, "") }, true},
		"retry":   {func(op operation) (operation, time.Duration, error) { return worker.Wait(op, 1, "") }, false},
		"failed":  {func(op operation) (operation, time.Duration, error) { return worker.Fail(op, nil) }, false},
		"panic":   {func(operation) (operation, time.Duration, error) { panic("x") }, false},
		"invalid": {func(op operation) (operation, time.Duration, error) { return op, -1, nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := workertest.Run(t, step(func(_ context.Context, op operation) (operation, time.Duration, error) {
				op.Remember("kubeconfig", []byte("secret"))
				op.SetOverrides("c", []worker.Override{{Key: "k", Value: "v"}})
				return c.end(op)
			}), workertest.Operation{})
			if kept := len(r.Remembered) == 1 && len(r.Overrides) == 1; kept != c.kept {
				t.Errorf("remembered %d values, %d overrides: want kept to be %v", len(r.Remembered), len(r.Overrides), c.kept)
			}
		})
	}
}

func TestRecall_EarlierAndOwnValues_AreFound(t *testing.T) {
	t.Parallel()
	workertest.Run(t, step(func(ctx context.Context, op operation) (operation, time.Duration, error) {
		op.Remember("own", []byte("2"))
		for key, want := range map[string]string{"earlier": "1", "own": "2"} {
			if got, err := op.Recall(ctx, key); err != nil || string(got) != want {
				t.Errorf("recall %q: %q, %v", key, got, err)
			}
		}
		if _, err := op.Recall(ctx, "never"); !errors.Is(err, worker.ErrNotRemembered) {
			t.Errorf("recall of an unknown key: %v", err)
		}
		return op, 0, nil
	}), workertest.Operation{Remembered: map[string][]byte{"earlier": []byte("1")}})
}

func TestStageMemory_Lost_OverridesOutcome(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(ctx context.Context, op operation) (operation, time.Duration, error){
		"recall, error returned": func(ctx context.Context, op operation) (operation, time.Duration, error) {
			_, err := op.Recall(ctx, "kubeconfig")
			if !errors.Is(err, worker.ErrStageLost) {
				t.Errorf("recall: %v", err)
			}
			return op, 0, err
		},
		"recall, error ignored": func(ctx context.Context, op operation) (operation, time.Duration, error) {
			_, _ = op.Recall(ctx, "kubeconfig")
			return op, 0, nil
		},
		"recall, then panic": func(ctx context.Context, op operation) (operation, time.Duration, error) {
			value, _ := op.Recall(ctx, "kubeconfig")
			return op, time.Duration(value[0]), nil
		},
		"overrides": func(ctx context.Context, op operation) (operation, time.Duration, error) {
			_, err := op.Overrides(ctx)
			return worker.Retry(op, time.Second, err)
		},
		// A write into the lost memory would hide the loss from later steps.
		"remember": func(_ context.Context, op operation) (operation, time.Duration, error) {
			op.Remember("more", []byte("x"))
			return op, 0, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := workertest.Run(t, step(run), workertest.Operation{LostMemory: true})
			if r.Outcome != event.OutcomeStageLost || r.Error != nil || r.RetryAfter != 0 || len(r.Remembered) != 0 {
				t.Errorf("result %+v: want stage lost and nothing remembered", r)
			}
		})
	}
}

func TestStageMemory_LostButUnused_IsIgnored(t *testing.T) {
	t.Parallel()
	r := workertest.Run(t, step(func(_ context.Context, op operation) (operation, time.Duration, error) {
		return op, 0, nil
	}), workertest.Operation{LostMemory: true})
	if r.Outcome != event.OutcomeSucceeded {
		t.Errorf("outcome %q: want succeeded", r.Outcome)
	}
}

func TestStageMemory_InvalidUse_FailsStep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		use  func(op operation)
		want string
	}{
		"empty key":            {func(op operation) { op.Remember("", nil) }, "key is empty"},
		"value too large":      {func(op operation) { op.Remember("k", make([]byte, 512<<10+1)) }, "at most 524288"},
		"override without key": {func(op operation) { op.SetOverrides("c", []worker.Override{{}}) }, "has no key"},
		"the first of several": {func(op operation) { op.Remember("", nil); _ = op.SaveDetails(1) }, "key is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := workertest.Run(t, step(func(_ context.Context, op operation) (operation, time.Duration, error) {
				c.use(op)
				return op, 0, nil
			}), workertest.Operation{})
			if r.Outcome != event.OutcomeFailed || !strings.Contains(r.Error.Message, c.want) {
				t.Errorf("outcome %q, error %+v: want a failure with %q", r.Outcome, r.Error, c.want)
			}
		})
	}
}

func TestStageMemory_NotConfigured_IsReported(t *testing.T) {
	t.Parallel()
	r := worker.Execute(t.Context(), step(func(_ context.Context, op operation) (operation, time.Duration, error) {
		op.Remember("k", []byte("v"))
		return op, 0, nil
	}), worker.Execution{Command: event.StepExecute{ExecuteBefore: time.Now().Add(time.Minute)}})
	if r.Outcome != event.OutcomeFailed || !strings.Contains(r.Error.Message, "KEB_STAGE_KEYS") {
		t.Errorf("outcome %q, error %+v: want a failure that names KEB_STAGE_KEYS", r.Outcome, r.Error)
	}
}

func TestClaimCredentials_Name_SelectsThem(t *testing.T) {
	t.Parallel()
	workertest.Run(t, step(func(ctx context.Context, op operation) (operation, time.Duration, error) {
		var sm struct {
			ClientID string `json:"clientid"`
		}
		if err := op.ClaimCredentials(ctx, event.CredentialsServiceManager, &sm); err != nil || sm.ClientID != "id" {
			t.Errorf("claim: %+v, %v", sm, err)
		}
		if err := op.ClaimCredentials(ctx, event.CredentialsKubeconfig, &sm); !errors.Is(err, worker.ErrNoCredentials) {
			t.Errorf("claim of unknown credentials: %v", err)
		}
		var number int
		err := op.ClaimCredentials(ctx, event.CredentialsServiceManager, &number)
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("claim into the wrong type: %v", err)
		}
		return op, 0, nil
	}), workertest.Operation{Credentials: map[string]any{
		event.CredentialsServiceManager: map[string]string{"clientid": "id", "clientsecret": "s3cret"},
	}})
}
