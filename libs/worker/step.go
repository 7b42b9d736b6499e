package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"
)

// Step is one step of a process. One value serves many operations concurrently, so it must not hold state of an operation.
type Step interface {
	// Name is the name of the step in the process file, for example "EDP_Registration": letters, digits, "_" and
	// "-", at most 64 bytes.
	Name() string
	// Run does the work and always returns the operation that it was given:
	//
	//	(op, 0, nil)  done
	//	(op, d, nil)  run again after d
	//	(op, 0, err)  failed; an *Error in err's chain says component and reason
	//
	// An error that no helper of this package created means failed, whatever the duration is. ctx ends at
	// op.ExecuteBefore, when the command is cancelled, and when the worker stops and the step does not end in
	// time; context.Cause is then ErrTimeLimit, ErrCancelled or ErrStopping. An error returned after that, unless
	// it is an *Error of another cause, does not fail the operation: the step runs again, or the operation is cancelled.
	//
	// Run must return soon after ctx has ended. If it does not return within a few seconds after op.ExecuteBefore, the worker
	// abandons it: its slot is used for other commands, and its result counts only if the orchestrator still waits for it.
	//
	// log has the operation, instance, stage, step and attempt as attributes. If Run panics, the step has failed.
	Run(ctx context.Context, op Operation, log *slog.Logger) (Operation, time.Duration, error)
}

var (
	stepNames   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	workerNames = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)
)

// CheckStep validates a step before it runs.
func CheckStep(step Step) error {
	if step == nil {
		return errors.New("a step is nil")
	}
	if name := step.Name(); !stepNames.MatchString(name) {
		return fmt.Errorf("step name %q: use letters, digits, \"_\" and \"-\", at most 64 of them", name)
	}
	return nil
}
