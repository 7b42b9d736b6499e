package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/libs/worker/contract"
)

func newWorker(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "worker", Short: "Create and test step workers, and ramp their versions"}
	cmd.AddCommand(newWorkerInit(o), newWorkerCheck(o), newWorkerRamp(o), newWorkerPin(o))
	return cmd
}

// workerCheck holds the flags of keb worker check.
type workerCheck struct {
	*options
	cfg    contract.Config
	cases  []string
	attach bool
	junit  string
	list   bool
}

func newWorkerCheck(o *options) *cobra.Command {
	w := &workerCheck{options: o}
	cmd := &cobra.Command{
		Use:   "check --worker NAME [-- COMMAND [ARG...]]",
		Short: "Check a step worker in any language against the contract of the bus",
		Long: `Check a step worker in any language against the contract of the bus.

The command starts a NATS server with the users, streams and consumers of production, starts the worker with the environment that
every worker gets (KEB_NATS_URL, KEB_NATS_USER, KEB_NATS_PASSWORD, KEB_STAGE_KEYS, KEB_WORKER_CONCURRENCY, KEB_WORKER_DRAIN_TIMEOUT),
and acts as the orchestrator: it sends and repeats commands, breaks connections, and stops and kills the worker. With --attach it
prints that environment instead, and waits for a worker that you start. The worker executes some hundred commands for at most 16
instances per step, so connect it to a test system; a case with cleanup: true removes what the steps have made. A worker that does not
register or answer is not checked further. The exit code is 0 if no check failed, and 1 if one did. See docs/step-author.md, and
docs/wire-contract.md for the rules.`,
		Example: "  keb worker check --worker hello-world --case cases.yaml -- ./hello-world-worker\n" +
			"  keb worker check --worker node-greeter -- node worker.mjs",
		Args: func(_ *cobra.Command, args []string) error { return w.args(args) },
		RunE: func(cmd *cobra.Command, args []string) error { return w.run(cmd.Context(), args) },
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // flags after the command belong to the command
	flags.StringVar(&w.cfg.Worker, "worker", "", "name of the worker, as in the process files")
	flags.StringSliceVar(&w.cfg.Steps, "step", nil, "steps to check; default: all registered steps")
	flags.StringArrayVar(&w.cases, "case", nil, "files with commands and their expected answers")
	flags.StringSliceVar(&w.cfg.Checks, "check", nil, "checks to run, see --list; default: all")
	flags.BoolVar(&w.list, "list", false, "only list the checks")
	flags.BoolVar(&w.attach, "attach", false, "print the worker's environment and wait for the worker instead of starting it")
	flags.IntVar(&w.cfg.Port, "port", 0, "port of the bus; default: a free port")
	flags.IntVar(&w.cfg.Concurrency, "concurrency", contract.DefaultConcurrency, "number of steps that the worker runs in parallel")
	flags.IntVar(&w.cfg.Commands, "commands", contract.DefaultCommands, "number of commands of the check throughput")
	flags.DurationVar(&w.cfg.Patience, "patience", contract.DefaultPatience, "time limit for the worker to start and to answer a command")
	flags.DurationVar(&w.cfg.Drain, "drain", contract.DefaultDrain, "time limit for running steps after SIGTERM")
	flags.StringVar(&w.junit, "junit", "", "file for the report as JUnit XML")
	return cmd
}

// args validates arguments and flags.
func (w *workerCheck) args(args []string) error {
	switch {
	case w.list && len(args) == 0:
		return nil
	case w.cfg.Worker == "":
		return usageError("worker check needs --worker NAME; see keb worker check --help")
	case w.attach && len(args) > 0:
		return usageError("worker check: --attach waits for a worker that you start; leave out %q or --attach", args[0])
	case !w.attach && len(args) == 0:
		return usageError("worker check needs the command that starts the worker after --, or --attach; see keb worker check --help")
	}
	if err := worker.CheckName(w.cfg.Worker); err != nil {
		return usageError("--worker: %s", err)
	}
	return nil
}

// prepare reads the cases and finds the program, before anything is started.
func (w *workerCheck) prepare(args []string) error {
	for _, name := range w.cases {
		file, err := os.Open(name)
		if err != nil {
			return usageError("--case: %s", err)
		}
		cases, err := contract.ReadCases(file)
		_ = file.Close() // it was only read
		if err != nil {
			return usageError("--case %s: %s", name, err)
		}
		w.cfg.Cases = append(w.cfg.Cases, cases...)
	}
	if w.attach {
		w.cfg.Attach = w.tell
	} else {
		path, err := exec.LookPath(args[0])
		if err != nil && !errors.Is(err, exec.ErrDot) {
			return usageError("worker check: %s: no such program", args[0])
		}
		w.cfg.Starter = contract.Command(path, args[1:]...)
	}
	if folder, err := os.Stat(filepath.Dir(w.junit)); w.junit != "" && (err != nil || !folder.IsDir()) {
		return usageError("--junit: there is no folder %s", filepath.Dir(w.junit))
	}
	if err := w.cfg.Validate(); err != nil {
		return usageError("worker check: %s", err)
	}
	return nil
}

func (w *workerCheck) run(ctx context.Context, args []string) error {
	if w.list {
		return contract.List(w.Out)
	}
	if err := w.prepare(args); err != nil {
		return err
	}
	var printed error
	w.cfg.Progress = func(f contract.Finding) {
		if printed == nil {
			printed = f.WriteText(w.progress())
		}
	}
	report, err := contract.Run(ctx, w.cfg)
	if err != nil {
		return err
	}
	if printed != nil {
		return printed
	}
	if w.junit != "" {
		if err := writeFile(w.junit, 0o644, report.WriteJUnit); err != nil {
			return fmt.Errorf("--junit: %w", err)
		}
	}
	if w.json() {
		err = report.WriteJSON(w.Out)
	} else if _, err = fmt.Fprintln(w.Out, report.Summary()); err == nil {
		err = report.WriteFixes(w.Out)
	}
	if failed := report.Count(contract.Failed); err == nil && failed > 0 {
		return fmt.Errorf("worker %s failed %d of %d checks", w.cfg.Worker, failed, len(report.Findings))
	}
	return err
}

// tell prints the environment for a worker that the user starts.
func (w *workerCheck) tell(env contract.Environment) {
	_, _ = fmt.Fprintf(w.Err, "start the worker with\n  %s\nwaiting up to %s for it\n", strings.Join(env.Variables(), " \\\n  "), w.cfg.Patience) // nowhere else to say it
}

// writeFile writes a file with a mode, or nothing: an older file stays if an error occurs. It writes to a device, a pipe or the target of a
// symbolic link in place.
func writeFile(name string, mode fs.FileMode, write func(io.Writer) error) error {
	if target, err := os.Lstat(name); err == nil && !target.Mode().IsRegular() {
		// For example /dev/stdout, a symbolic link that must not be replaced.
		file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
		if err != nil {
			return err
		}
		return errors.Join(write(file), file.Close())
	}
	file, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	err = errors.Join(file.Chmod(mode), write(file), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}
