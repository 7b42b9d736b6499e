// Package batch has the jobs: each finds instances, processes them and reports the results (docs/contracts/broker.md#jobs).
package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/kyma-project/keb/libs/extclient"
)

// Options are the common options of all jobs.
type Options struct {
	// DryRun reports the instances without any change.
	DryRun bool
	// Wait makes the job wait for the end of each operation, at most WaitTimeout.
	Wait        bool
	WaitTimeout time.Duration
	// Parallel is the number of instances that are processed in parallel.
	Parallel int
}

// Outcome is the result for one instance.
type Outcome int

// The outcomes.
const (
	// Skipped means that there was nothing left to do.
	Skipped Outcome = iota
	// Started means that the broker accepted an operation, or would accept it in a dry run.
	Started
	// Completed means that the job waited for the operation, and it succeeded.
	Completed
)

// Failure is an instance that the job could not process.
type Failure struct {
	Instance string `json:"instance"`
	// Reason is one line without secrets.
	Reason string `json:"reason"`
}

// Report is the result of a job.
type Report struct {
	Job    string `json:"job"`
	DryRun bool   `json:"dryRun"`
	// Found is the number of instances to process.
	Found int `json:"found"`
	// Started is the number of accepted operations; in a dry run, of those that would be accepted.
	Started int `json:"started"`
	// Completed is the number of operations that succeeded while the job waited. Without waiting it is 0.
	Completed int `json:"completed"`
	// Skipped is the number of instances with nothing left to do.
	Skipped int `json:"skipped"`
	// Failed are the failures, ordered by instance. An operation that was started and then failed is also counted in Started.
	Failed []Failure `json:"failed"`
	// Error is the reason why the job could not begin or complete: one line without secrets.
	Error string `json:"error,omitempty"`
}

// Err returns an error if any instance failed.
func (r *Report) Err() error {
	if len(r.Failed) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d of %d instances failed", r.Job, len(r.Failed), r.Found)
}

// Print writes the report as text.
func (r *Report) Print(w io.Writer) error {
	text := fmt.Sprintf("%s: found %d, started %d", r.Job, r.Found, r.Started)
	if r.DryRun {
		text = fmt.Sprintf("%s (dry run): found %d, would start %d", r.Job, r.Found, r.Started)
	}
	if r.Completed > 0 {
		text += fmt.Sprintf(", completed %d", r.Completed)
	}
	text += fmt.Sprintf(", skipped %d, failed %d\n", r.Skipped, len(r.Failed))
	for _, f := range r.Failed {
		text += fmt.Sprintf("  %s: %s\n", f.Instance, f.Reason)
	}
	_, err := io.WriteString(w, text)
	return err
}

// StartedError is a failure of an accepted operation.
type StartedError struct{ Err error }

// Error returns the text of the failure.
func (e *StartedError) Error() string { return e.Err.Error() }

// Unwrap returns the failure.
func (e *StartedError) Unwrap() error { return e.Err }

// Run calls do for each instance, with at most parallel calls at the same time. It reports a failure and continues with the other instances.
// It returns an error if the context ends before all instances were processed; the report then contains the results so far.
func Run[T any](
	ctx context.Context, report Report, parallel int, instances []T, id func(T) string, do func(context.Context, T) (Outcome, error),
) (Report, error) {
	report.Found, report.Failed = len(instances), []Failure{}
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		next int
	)
	take := func() (T, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == len(instances) || ctx.Err() != nil {
			var none T
			return none, false
		}
		next++
		return instances[next-1], true
	}
	record := func(instance T, outcome Outcome, err error) {
		mu.Lock()
		defer mu.Unlock()
		report.record(id(instance), outcome, err)
	}
	for range min(max(parallel, 1), len(instances)) {
		wg.Go(func() {
			for instance, ok := take(); ok; instance, ok = take() {
				outcome, err := do(ctx, instance)
				record(instance, outcome, err)
			}
		})
	}
	wg.Wait()
	slices.SortFunc(report.Failed, func(a, b Failure) int { return cmp.Compare(a.Instance, b.Instance) })
	if ctx.Err() != nil && next < len(instances) {
		return report, fmt.Errorf("stopped after %d of %d instances: %w", next, len(instances), context.Cause(ctx))
	}
	return report, nil
}

func (r *Report) record(id string, outcome Outcome, err error) {
	if err != nil {
		if _, ok := errors.AsType[*StartedError](err); ok {
			r.Started++
		}
		r.Failed = append(r.Failed, Failure{Instance: id, Reason: extclient.Sanitize(err.Error())})
		return
	}
	switch outcome {
	case Skipped:
		r.Skipped++
	case Completed:
		r.Started++
		r.Completed++
	case Started:
		r.Started++
	}
}

// Follower waits for operations.
type Follower interface {
	Await(ctx context.Context, instanceID, operation string, atMost time.Duration) error
}

// Follow returns the outcome of an accepted operation. With opts.Wait it waits for the end of the operation. operation is empty if no
// operation was needed.
func Follow(ctx context.Context, opts Options, f Follower, instanceID, operation string) (Outcome, error) {
	if !opts.Wait || opts.DryRun {
		return Started, nil
	}
	if operation == "" {
		return Completed, nil
	}
	if err := f.Await(ctx, instanceID, operation, opts.WaitTimeout); err != nil {
		return Started, &StartedError{Err: err}
	}
	return Completed, nil
}
