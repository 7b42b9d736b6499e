package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"
)

// Step is one step of a process. One value serves many operations at once, so it keeps no state of an operation.
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
	// An error that is not from one of the helpers of this package means failed whatever the duration is. ctx ends at
	// op.ExecuteBefore, and when the worker is stopped and the step does not end in time; an error returned after
	// that, unless it is an *Error of another cause, does not fail the operation: the step runs again.
	//
	// log carries the operation, instance, stage, step and attempt. Run may panic: the step then counts as failed.
	Run(ctx context.Context, op Operation, log *slog.Logger) (Operation, time.Duration, error)
}

var (
	stepNames   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	workerNames = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)
)

// CheckStep tells what is wrong with a step before it ever runs.
func CheckStep(step Step) error {
	if step == nil {
		return errors.New("a step is nil")
	}
	if name := step.Name(); !stepNames.MatchString(name) {
		return fmt.Errorf("step name %q: use letters, digits, \"_\" and \"-\", at most 64 of them", name)
	}
	return nil
}
