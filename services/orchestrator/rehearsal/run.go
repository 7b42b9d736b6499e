package rehearsal

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
)

// Answer is what a fake worker does with one command. Make one with Succeed, Skip, Poll, Retry, Fail, Hang or Away.
type Answer struct {
	outcome event.Outcome
	after   time.Duration
	message string
	hangs   bool
	away    bool
}

// Succeed completes the step.
func Succeed() Answer { return Answer{outcome: event.OutcomeSucceeded} }

// Skip ends the step because there is nothing to do.
func Skip(message string) Answer { return Answer{outcome: event.OutcomeSkipped, message: message} }

// Poll asks for another execution without an error, after a time; 0 means the time in the process file.
func Poll(after time.Duration) Answer { return Answer{outcome: event.OutcomeRetry, after: after} }

// Retry asks for another execution because of an error, after a time; 0 means the time in the process file.
func Retry(after time.Duration, message string) Answer {
	if message == "" {
		message = "scripted error"
	}
	return Answer{outcome: event.OutcomeRetry, after: after, message: message}
}

// Fail fails the step.
func Fail(message string) Answer { return Answer{outcome: event.OutcomeFailed, message: message} }

// Hang takes the command and never answers.
func Hang() Answer { return Answer{hangs: true} }

// Away is no worker at all: the command stays on the bus.
func Away() Answer { return Answer{hangs: true, away: true} }

// Script has the answers of workers by the name of the step, one per execution. The last answer repeats. A step that is not
// in the script succeeds.
type Script map[string][]Answer

// start is when every run starts. Only differences of times matter.
var start = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// maxRounds bounds a run. The longest operations retry every few seconds for a day.
const maxRounds = 1_000_000

// Run plays an operation from its start to its end. The error says that the script names a step that the process does not
// have, or that the operation does not end.
func Run(p *process.Process, op event.Operation, script Script) (*Trace, error) {
	if p == nil {
		return nil, errors.New("there is no process")
	}
	for _, name := range slices.Sorted(maps.Keys(script)) {
		if _, _, ok := p.Find(name); !ok {
			return nil, fmt.Errorf("the process %s has no step %q", p.Operation, name)
		}
		if len(script[name]) == 0 {
			return nil, fmt.Errorf("step %q: the script has no answer", name)
		}
	}
	if op.ID == "" {
		op.ID = uuid.NewString()
	}
	op.Type = p.Operation
	o := New(p, op)
	now := start
	if err := o.Start(nil, nil, now); err != nil {
		return nil, err
	}
	asked := map[string]int{}
	executions := map[string]int{}
	var current string // the command that a worker has
	var answer Answer
	for range maxRounds {
		worker, command, ok := o.Command()
		if !ok {
			due := o.Due()
			if due.IsZero() {
				return newTrace(o, executions), nil
			}
			now = due
			if err := o.Wake(now); err != nil {
				return nil, err
			}
			continue
		}
		if id := event.CommandID(op.ID, command.Cursor); id != current {
			current, answer = id, Succeed()
			if answers := script[command.Step]; len(answers) > 0 {
				answer = answers[min(asked[command.Step], len(answers)-1)]
				asked[command.Step]++
			}
			if !answer.away {
				executions[command.Step]++
			}
		}
		if answer.hangs {
			now = o.Due()
			if err := o.wake(!answer.away, now); err != nil {
				return nil, err
			}
			continue
		}
		if err := o.apply(answer.result(worker, command), now); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the operation has not ended after %d rounds and %s", maxRounds, now.Sub(start))
}

func (a Answer) result(worker string, c event.StepExecute) engine.Result {
	r := engine.Result{Outcome: a.outcome, Cursor: c.Cursor, Worker: event.Worker{Name: worker}, RetryAfter: a.after, Message: a.message}
	if a.outcome == event.OutcomeFailed || a.outcome == event.OutcomeRetry && a.message != "" {
		r.Error, r.Message = &event.Error{Component: worker, Reason: "err_scripted", Message: a.message}, ""
	}
	return r
}

// Trace is what happened in a run.
type Trace struct {
	State event.OperationState `json:"state"`
	// Error is why the operation failed; nil if it did not.
	Error *event.Error `json:"error,omitempty"`
	// NotCompleted names the steps that the operation went on without, in the order of the process.
	NotCompleted []string `json:"notCompleted,omitempty"`
	// Took is the time from the start of the operation to its end.
	Took time.Duration `json:"tookNanoseconds"`
	// Lines has the end of every try of every step, in order.
	Lines []Line `json:"lines"`
	// executions counts the commands that a worker has taken, by step.
	executions map[string]int
}

// Line is the end of one try of a step.
type Line struct {
	// At is the time since the start of the operation.
	At           time.Duration `json:"atNanoseconds"`
	Stage        string        `json:"stage"`
	Step         string        `json:"step"`
	StageAttempt int           `json:"stageAttempt"`
	StepAttempt  int           `json:"stepAttempt"`
	Outcome      event.Outcome `json:"outcome"`
	// Message and Error are those of the answer, or of the engine.
	Message string       `json:"message,omitempty"`
	Error   *event.Error `json:"error,omitempty"`
}

func newTrace(o *Player, executions map[string]int) *Trace {
	s := o.Status()
	t := &Trace{
		State: s.State, NotCompleted: s.NotCompleted, Took: o.state.FinishedAt.Sub(start), executions: executions,
		Lines: make([]Line, len(o.facts)),
	}
	if s.State != event.Succeeded {
		t.Error = s.Error
	}
	for i := range o.facts {
		f := &o.facts[i]
		t.Lines[i] = Line{
			At: f.OccurredAt.Sub(start), Stage: f.Stage, Step: f.Step, StageAttempt: f.StageAttempt,
			StepAttempt: f.StepAttempt, Outcome: f.Outcome, Message: f.Message, Error: f.Error,
		}
	}
	return t
}

// Executions is how many commands for a step a worker has taken.
func (t *Trace) Executions(step string) int { return t.executions[step] }

// Steps names the steps in the order in which they ended, without those that were skipped. Consecutive tries of one step count once.
func (t *Trace) Steps() []string {
	var names []string
	for i := range t.Lines {
		if l := &t.Lines[i]; l.Outcome != event.OutcomeSkipped && (len(names) == 0 || names[len(names)-1] != l.Step) {
			names = append(names, l.Step)
		}
	}
	return names
}

// String is a table of what happened. Consecutive equal tries of a step are one line.
func (t *Trace) String() string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "AT\tSTAGE\tSTEP\tOUTCOME\tTRIES\tTEXT")
	for i := 0; i < len(t.Lines); {
		first := t.Lines[i]
		n := 1
		for i+n < len(t.Lines) && sameTry(&first, &t.Lines[i+n]) {
			n++
		}
		text := first.Message
		if first.Error != nil {
			text = first.Error.Message
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\n", first.At, first.Stage, first.Step, first.Outcome, n, text)
		i += n
	}
	_ = table.Flush() // a strings.Builder takes everything
	fmt.Fprintf(&b, "%s after %s", t.State, t.Took)
	if t.Error != nil {
		fmt.Fprintf(&b, ": %s", t.Error.Message)
	}
	if len(t.NotCompleted) > 0 {
		fmt.Fprintf(&b, "; not completed: %s", strings.Join(t.NotCompleted, ", "))
	}
	b.WriteByte('\n')
	return b.String()
}

func sameTry(a, b *Line) bool {
	same := a.Stage == b.Stage && a.Step == b.Step && a.Outcome == b.Outcome && a.Message == b.Message
	if a.Error == nil || b.Error == nil {
		return same && a.Error == b.Error
	}
	return same && *a.Error == *b.Error
}
