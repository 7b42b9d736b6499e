// Package batch works through the instances that a job has found, and reports what came of it.
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

// Options are what all jobs have in common.
type Options struct {
	// DryRun finds and reports, and changes nothing.
	DryRun bool
	// Wait follows each operation until it has ended, at most WaitTimeout.
	Wait        bool
	WaitTimeout time.Duration
	// Parallel is how many instances are worked on at once.
	Parallel int
}

// Outcome is what came of one instance.
type Outcome int

// Outcomes.
const (
	// Skipped: there was nothing to do any more.
	Skipped Outcome = iota
	// Started: an operation was accepted, or would have been in a dry run.
	Started
	// Completed: the operation was followed and has succeeded.
	Completed
)

// Failure is an instance for which the job could not do its work.
type Failure struct {
	Instance string `json:"instance"`
	// Reason is one line without secrets.
	Reason string `json:"reason"`
}

// Report is what a job did.
type Report struct {
	Job    string `json:"job"`
	DryRun bool   `json:"dryRun"`
	// Found is how many instances there were to work on.
	Found int `json:"found"`
	// Started is for how many an operation was accepted; in a dry run, would have been.
	Started int `json:"started"`
	// Completed is how many of those were followed until they succeeded. Without waiting it is 0.
	Completed int `json:"completed"`
	// Skipped is for how many there was nothing to do any more when their turn came.
	Skipped int `json:"skipped"`
	// Failed is the others, ordered by instance. An operation that was started and then failed counts in Started, too.
	Failed []Failure `json:"failed"`
	// Error is why the job could not begin or did not come to its end, one line without secrets.
	Error string `json:"error,omitempty"`
}

// Err is nil unless something failed.
func (r *Report) Err() error {
	if len(r.Failed) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %d of %d instances failed", r.Job, len(r.Failed), r.Found)
}

// Print writes the report for a person.
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

// StartedError is a failure after the operation had been accepted.
type StartedError struct{ Err error }

// Error is the failure.
func (e *StartedError) Error() string { return e.Err.Error() }

// Unwrap returns the failure.
func (e *StartedError) Unwrap() error { return e.Err }

// Run does the work for each instance, at most parallel at once. A failure is reported and stops no other instance. It
// returns an error when the context ends before all had their turn; the report then tells what was done until then.
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

// Follower follows operations.
type Follower interface {
	Await(ctx context.Context, instanceID, operation string, atMost time.Duration) error
}

// Follow is the outcome of an accepted operation: of its end if opts say so, else only that it was started. There may be no
// operation, if nothing had to run.
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
