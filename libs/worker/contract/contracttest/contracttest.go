// Package contracttest runs the contract kit in a test: the same checks as keb worker check, each a subtest.
//
//	func TestContract(t *testing.T) {
//		contracttest.Steps(t, contract.Config{Worker: "hello-world"}, NewHelloWorldStep(client, url))
//	}
//
// It needs no server and no network; NATS runs in the process of the test.
package contracttest

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/stagemem"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/contract"
)

// Check runs each check of cfg as a subtest with the result of the check. cfg needs a Starter, for a program contract.Command.
func Check(t *testing.T, cfg contract.Config) *contract.Report {
	t.Helper()
	report, err := contract.Run(t.Context(), cfg)
	if err != nil {
		t.Fatalf("check worker %s: %v", cfg.Worker, err)
	}
	for i := range report.Findings {
		f := &report.Findings[i]
		t.Run(f.Check, func(t *testing.T) {
			t.Logf("%.1f s %s", f.Took, f.Figure)
			switch f.Status {
			case contract.Failed:
				for _, problem := range f.Problems {
					t.Errorf("the worker does not do this: it %s\n%s\nhint: %s; see %s", f.What, problem, f.Hint, f.Docs)
				}
			case contract.Skipped:
				t.Skip(f.Problems)
			}
		})
	}
	t.Log(report.Summary())
	return report
}

// Steps checks steps that the SDK runs in this process.
func Steps(t *testing.T, cfg contract.Config, steps ...worker.Step) *contract.Report {
	t.Helper()
	cfg.Starter = Worker(cfg.Worker, "1.0.0", steps...)
	return Check(t, cfg)
}

// Worker starts steps in this process, like worker.Main in a separate one.
func Worker(name, version string, steps ...worker.Step) contract.Starter {
	return contract.Func(func(ctx context.Context, env contract.Environment, output io.Writer) error {
		log := slog.New(slog.NewTextHandler(output, nil))
		b, err := bus.Connect(ctx, bus.Config{
			URL: env.URL, Name: worker.ServicePrefix + name, User: env.User, Password: env.Password, Guest: true,
		}, bus.Deps{Log: log})
		if err != nil {
			return err
		}
		defer b.Close()
		deps := worker.Deps{Bus: b, Log: log}
		if env.StageKeys != "" {
			keys, err := seal.ParseKeyring(env.StageKeys)
			if err != nil {
				return err
			}
			deps.StageMemory = stagemem.NewGuest(b.JetStream(), keys)
		}
		w, err := worker.New(worker.Config{Name: name, Version: version, Concurrency: env.Concurrency, DrainTimeout: env.Drain}, deps, steps...)
		if err != nil {
			return err
		}
		return w.Run(ctx)
	})
}
