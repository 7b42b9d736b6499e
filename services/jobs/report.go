package jobs

import (
	"fmt"
	"io"

	"github.com/kyma-project/keb/libs/extclient"
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

// outcome is the result for one instance.
type outcome int

// The outcomes.
const (
	// skipped means that there was nothing left to do.
	skipped outcome = iota
	// started means that the broker accepted an operation, or would accept it in a dry run.
	started
	// completed means that the job waited for the operation, and it succeeded.
	completed
)

// record adds the outcome for an instance. An error after the start of an operation counts as started, too.
func (r *Report) record(instanceID string, o outcome, err error) {
	if o != skipped {
		r.Started++
	}
	switch {
	case err != nil:
		r.Failed = append(r.Failed, Failure{Instance: instanceID, Reason: extclient.Sanitize(err.Error())})
	case o == skipped:
		r.Skipped++
	case o == completed:
		r.Completed++
	}
}
