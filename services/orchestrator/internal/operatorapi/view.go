package operatorapi

import (
	"context"
	"slices"
	"time"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/mask"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/libs/tracing"
	"github.com/kyma-project/keb/services/orchestrator/internal/engine"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
)

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// extras contains what is shown with operations in addition to their rows.
type extras struct {
	// running is the operation in progress by instance, and recorded the time of the last history line by operation.
	running  map[string]string
	recorded map[string]time.Time
	// places are the places of pending operations in the queues of limits.
	places map[string]limit.Place
	// positions are those of operations whose commands wait for limits.
	positions map[string]int
}

// extras reads the additional data of rows.
func (a *API) extras(ctx context.Context, rows []*store.Row) (s extras, err error) {
	var instances, again []string
	for _, r := range rows {
		if r.Status != event.Pending {
			continue
		}
		instances = append(instances, r.Operation.InstanceID)
		if r.Cursor > 0 {
			again = append(again, r.Operation.ID)
		}
	}
	if len(instances) > 0 {
		if s.running, err = a.deps.Operations.Running(ctx, instances); err != nil {
			return s, err
		}
	}
	if s.recorded, err = a.deps.Operations.Recorded(ctx, again); err != nil {
		return s, err
	}
	if s.places, err = a.places(ctx, rows, s.running); err != nil {
		return s, err
	}
	var limited []string
	for _, r := range rows {
		if r.Limited() {
			limited = append(limited, r.Operation.ID)
		}
	}
	if len(limited) > 0 && len(limited) <= maxPlaces {
		s.positions, err = a.deps.Operations.Positions(ctx, limited)
	}
	return s, err
}

// maxPlaces is the maximum number of operations whose positions are determined. It takes milliseconds for each.
const maxPlaces = 10

// places returns the places of pending operations that only limits keep from starting.
func (a *API) places(ctx context.Context, rows []*store.Row, running map[string]string) (map[string]limit.Place, error) {
	var limited []string
	places := map[string]limit.Place{}
	limits := a.deps.CurrentLimits()
	for _, r := range rows {
		q := limit.QueueOf(&r.Operation)
		if keys := q.Keys(limits); r.Status == event.Pending && !r.Held() && running[r.Operation.InstanceID] == "" && len(keys) > 0 {
			limited = append(limited, r.Operation.ID)
			places[r.Operation.ID] = limit.Place{Limit: keys[0].Limit.Name}
		}
	}
	if len(limited) == 0 || len(limited) > maxPlaces {
		return places, nil
	}
	standing, err := a.deps.Operations.Admission(ctx, limited)
	if err != nil {
		return nil, err
	}
	for _, m := range standing.Of {
		places[m.ID] = limit.PlaceOf(m.Queue, m.Ahead, standing.Pending, standing.Running, limits)
	}
	return places, nil
}

// views converts rows to their form in the API.
func (a *API) views(ctx context.Context, rows []*store.Row) ([]operator.Operation, error) {
	s, err := a.extras(ctx, rows)
	if err != nil {
		return nil, err
	}
	views := make([]operator.Operation, len(rows))
	for i, r := range rows {
		p, err := a.deps.Definitions.Pinned(ctx, r.Definition)
		if err != nil {
			return nil, err
		}
		views[i] = a.view(r, p, s)
	}
	return views, nil
}

// view converts a row.
func (a *API) view(r *store.Row, p *process.Process, s extras) operator.Operation {
	op := &r.Operation
	o := operator.Operation{
		ID: op.ID, Type: op.Type, State: r.Status, InstanceID: op.InstanceID, Plan: op.Plan.Name,
		Cursor: r.Cursor, Message: r.Message, Error: r.Error, NotCompleted: r.NotCompleted, Purpose: purpose(op),
		CreatedAt: r.CreatedAt, StartedAt: optional(r.StartedAt), FinishedAt: optional(r.FinishedAt), Archived: r.Archived,
		GlobalAccountID: op.Context.GlobalAccountID, SubaccountID: op.Context.SubaccountID,
		RuntimeName: op.Runtime.Name, ShootName: op.Runtime.ShootName, Region: op.Runtime.Region,
	}
	if r.Waiting() {
		o.DueAt = optional(r.DueAt)
	}
	if o.NotCompleted == nil {
		o.NotCompleted = []string{}
	}
	o.Incomplete = r.Status == event.Succeeded && len(r.NotCompleted) > 0
	if op.Upgrade != nil {
		o.OrchestrationID, o.DryRun = op.Upgrade.OrchestrationID, op.Upgrade.DryRun
	}
	if r.Ending != nil {
		o.Error = &r.Ending.Error // the error that ends it, not one of the finally stage
	}
	if at := r.Position(p); at != nil {
		o.Stage, o.Step, o.StageAttempt, o.StepAttempt = at.Stage, at.Step, at.StageAttempt, at.StepAttempt
	} else if step := p.At(r.Stage, r.Step); r.Status == event.Failed && step != nil {
		o.Stage, o.Step = p.Stages[r.Stage].Name, step.Name
	}
	if c := r.Cause; c != nil && p.At(c.Stage, c.Step) != nil {
		o.Cause = &operator.Cause{
			Stage: p.Stages[c.Stage].Name, Step: p.At(c.Stage, c.Step).Name, Error: c.Error, Since: c.Since, Attempts: c.Attempts,
		}
	}
	o.Waiting = a.waiting(r, p, s)
	o.WaitingFor = o.Waiting.String()
	o.Progress = a.progress(r, p)
	o.Budget = a.budget(r, p)
	if !r.Status.Final() {
		o.CancelRequested = r.CancelReason
	}
	return o
}

// purpose returns the purpose of an operation. A broker of an earlier release only sets Temporary.
func purpose(op *event.Operation) event.Purpose {
	if op.Purpose == "" && op.Temporary {
		return event.PurposeSuspension
	}
	return op.Purpose
}

// waiting returns what an operation waits for; nil once it has ended.
func (a *API) waiting(r *store.Row, p *process.Process, s extras) *operator.Waiting {
	if r.Status == event.Pending {
		w := &operator.Waiting{Reason: operator.Admission, Since: r.CreatedAt}
		if again, ok := s.recorded[r.Operation.ID]; ok {
			w.Since = again // retried by an operator
		}
		// The operation in progress is read after the row, so it may be this operation, which waited for admission until then.
		if running := s.running[r.Operation.InstanceID]; running != "" && running != r.Operation.ID {
			w.Reason, w.Operation = operator.InstanceBusy, running
		} else if r.Held() {
			w.Reason, w.Since, w.Hold = operator.Held, r.HeldSince, r.HoldID
		} else if place, ok := s.places[r.Operation.ID]; ok {
			w.Reason, w.Limit, w.Position = operator.Limited, place.Limit, place.Position
		}
		return w
	}
	if r.Held() {
		step := p.At(r.Stage, r.Step)
		return &operator.Waiting{Reason: operator.Held, Since: r.HeldSince, Hold: r.HoldID, Worker: step.Worker, Step: step.Name}
	}
	if r.Limited() {
		step := p.At(r.Stage, r.Step)
		return &operator.Waiting{
			Reason: operator.Limited, Since: r.LimitedSince, Limit: limit.NameOf(r.Queue), Position: s.positions[r.Operation.ID],
			Worker: step.Worker, Step: step.Name,
		}
	}
	if !r.InFlight() && !r.Waiting() {
		return nil
	}
	w := &operator.Waiting{Reason: operator.Executing, Since: r.SentAt, Until: optional(r.ExecuteBefore)}
	if r.Condition != "" {
		w.Reason, w.Since, w.Event = operator.WaitingReason(r.Condition), r.ConditionSince, r.EventKey
	}
	if r.Waiting() {
		w.Until = optional(r.DueAt)
	}
	w.ExtendedSeconds = int(max(r.Extended, 0) / time.Second)
	step := p.At(r.Stage, r.StandsAt())
	if current := p.At(r.Stage, r.Step); r.InFlight() && !a.serves(r, current) {
		step = current
		w.Version = a.deps.VersionOf(&r.Operation, current.Worker, r.StartedAt)
		seen := current.Worker
		if w.Version != "" {
			seen = event.Ramped(seen)
		}
		w.Reason, w.Since, w.Until, w.ExtendedSeconds, w.Event = operator.NoWorker, a.withoutWorker(seen, w.Since), nil, 0, ""
	}
	w.Worker, w.Step = step.Worker, step.Name
	return w
}

// serves reports whether a live replica serves a step for an operation.
func (a *API) serves(r *store.Row, step *process.Step) bool {
	if version := a.deps.VersionOf(&r.Operation, step.Worker, r.StartedAt); version != "" {
		return a.deps.Workers.ServesRamped(step.Worker, step.Name, version)
	}
	return a.deps.Workers.Serves(step.Worker, step.Name)
}

// progress returns how far the step in execution is; nil if its worker has not said so.
func (a *API) progress(r *store.Row, p *process.Process) *operator.StepProgress {
	if !r.InFlight() {
		return nil
	}
	report, ok := a.deps.Progress.Of(engine.Next(p, &r.State).Worker, event.CommandRef{OperationID: r.Operation.ID, Cursor: r.AwaitedCursor()})
	if !ok {
		return nil
	}
	return &operator.StepProgress{Message: report.Message, Percent: report.Percent, At: report.At}
}

// budget returns the budget of the step that an operation stands at; nil if it is not at a step.
func (a *API) budget(r *store.Row, p *process.Process) *operator.Budget {
	left := engine.Left(p, &r.State)
	if left == nil {
		return nil
	}
	return &operator.Budget{
		Limit: string(left.Limit), NextTryAt: optional(r.DueAt), Attempts: left.Attempts, EndsAt: left.EndsAt, SecondsLeft: max(0, int(left.EndsAt.Sub(a.deps.Now())/time.Second)), OnTimeout: string(left.OnTimeout),
	}
}

// details converts a row with its history.
func (a *API) details(r *store.Row, p *process.Process, extras extras, history []engine.Entry) operator.OperationDetail {
	d := operator.OperationDetail{
		Operation: a.view(r, p, extras), Stages: make([]operator.Stage, len(p.Stages)), ProcessHash: p.Hash(), Details: mask.JSON(r.Details),
		History: viewLines(history[max(0, len(history)-maxHistory):], p), HistoryCount: len(history),
		Parameters: mask.JSON(r.Operation.Parameters), Update: maskedUpdate(r.Operation.Update), Upgrade: r.Operation.Upgrade, Runs: runs(history), TraceID: traceID(r),
	}
	if current := a.deps.Definitions.Set()[r.Operation.Type]; current != nil {
		d.ProcessCurrent = current.Hash() == p.Hash()
	}
	d.Links = a.deps.Links.of(&d)
	for i := range p.Stages {
		d.Stages[i] = operator.Stage{Name: p.Stages[i].Name, State: stageState(r, i), Finally: p.Stages[i].Finally, Steps: make([]operator.Step, len(p.Stages[i].Steps))}
		for j := range p.Stages[i].Steps {
			d.Stages[i].Steps[j] = operator.Step{Name: p.Stages[i].Steps[j].Name, Worker: p.Stages[i].Steps[j].Worker, State: operator.StateWaiting}
		}
	}
	for i := range history {
		h := &history[i]
		if h.Stage >= 0 && h.Step >= 0 {
			s := &d.Stages[h.Stage].Steps[h.Step]
			if h.Kind == engine.KindStep {
				d.Stages[h.Stage].Attempt = h.StageAttempt
				addLine(s, h)
				if r.Status.Final() && h.Stage == p.Finally() {
					d.Stages[h.Stage].State = operator.StateFinished
				}
			}
		}
	}
	for i := range d.Stages {
		for j := range d.Stages[i].Steps {
			settle(r, &d.Stages[i], j, i == r.Stage)
		}
	}
	if r.Status == event.InProgress && p.At(r.Stage, r.Step) != nil {
		current := &d.Stages[r.Stage]
		current.Attempt = r.StageAttempt
		for j := range current.Steps {
			s := &current.Steps[j]
			if j == r.Step && !r.Waiting() {
				s.State = operator.StateCurrent
				s.Attempts++ // the running one
				s.FirstTriedAt = optional(r.FirstTriedAt)
				s.FinishedAt, s.DurationMS = nil, nil
			} else if j > r.Step {
				s.State = operator.StateWaiting
			}
			if w := d.Waiting; w != nil && w.Step == s.Name && w.Reason != operator.Executing {
				s.State = string(w.Reason)
			}
		}
	}
	return d
}

// settle corrects the state of a step, which is that of its last try, by the state of its stage and of the operation. isLast reports whether
// the stage is the last one that the operation has reached.
func settle(r *store.Row, stage *operator.Stage, step int, isLast bool) {
	s := &stage.Steps[step]
	// Operations that are tried again, or were when they ended, leave a state such as failing.
	settled := slices.Contains([]string{operator.StateSucceeded, operator.StateFailed, operator.StateSkipped, operator.StateNotCompleted}, s.State)
	passed := operator.StateSucceeded
	if slices.Contains(r.NotCompleted, s.Name) {
		passed = operator.StateNotCompleted
	}
	switch stage.State {
	case operator.StateWaiting: // also if it ran before an operator's retry, unless that begins with a later step
		if !isLast || step >= r.Step {
			s.State = operator.StateWaiting
		} else if !settled {
			s.State = passed
		}
	case operator.StateFinished:
		if !settled {
			s.State = passed
		}
	case operator.StateCurrent:
		if step < r.Step && !settled {
			s.State = passed
		}
	default: // the operation, or all but its finally stage, has ended
		at := r.Step
		if r.Ending != nil && !isLast {
			at = r.Ending.Step
		}
		switch {
		case step == at && (s.Attempts > 0 || stage.State == operator.StateFailed):
			s.State = stage.State
		case step < at && !settled:
			s.State = passed
		case !settled && s.Attempts > 0:
			s.State = stage.State // the stage was repeated because of this step
		}
	}
}

// runs returns the times in which an operation ran.
func runs(history []engine.Entry) []operator.Run {
	runs := []operator.Run{}
	for i := range history {
		e := &history[i]
		var state event.OperationState
		switch e.Kind {
		case engine.KindStarted:
			runs = append(runs, operator.Run{StartedAt: e.FinishedAt})
			continue
		case engine.KindSucceeded:
			state = event.Succeeded
		case engine.KindFailed:
			state = event.Failed
		case engine.KindCancelled:
			state = event.Cancelled
		default:
			continue
		}
		if n := len(runs); n > 0 && runs[n-1].EndedAt == nil {
			runs[n-1].EndedAt, runs[n-1].State = optional(e.FinishedAt), state
		}
	}
	return runs
}

// traceID returns the trace of an operation; empty if it is not traced.
func traceID(r *store.Row) string {
	parent := tracing.ParseParent(r.TraceParent)
	if !parent.IsSampled() {
		return ""
	}
	return parent.TraceID().String()
}

// viewLines converts history entries.
func viewLines(history []engine.Entry, p *process.Process) []operator.HistoryLine {
	lines := make([]operator.HistoryLine, len(history))
	for i := range history {
		lines[i] = viewLine(&history[i], p)
	}
	return lines
}

func viewLine(e *engine.Entry, p *process.Process) operator.HistoryLine {
	l := operator.HistoryLine{
		Cursor: e.Cursor, Tries: e.Tries(), WorkerVersion: e.WorkerVersion, Outcome: e.Name(), StageAttempt: e.StageAttempt,
		StepAttempt: e.StepAttempt, Message: e.Message, Error: e.Error, QueuedMS: e.Queued.Milliseconds(),
		StartedAt: e.StartedAt, FinishedAt: e.FinishedAt,
	}
	if s := p.At(e.Stage, e.Step); s != nil {
		l.Stage, l.Step, l.Worker = p.Stages[e.Stage].Name, s.Name, s.Worker
	}
	if f := e.Folded; f != nil {
		l.Similar = f.Similar
		l.First = &operator.FirstTry{Cursor: f.Cursor, StageAttempt: f.StageAttempt, StepAttempt: f.StepAttempt, StartedAt: f.StartedAt}
	}
	return l
}

// addLine updates a step with a history entry.
func addLine(s *operator.Step, e *engine.Entry) {
	switch s.State = e.Name(); e.Outcome {
	case event.OutcomeRetry:
		s.State = string(operator.Polling)
		if e.Error != nil {
			s.State = string(operator.Failing)
		}
	case event.OutcomeStageLost:
		s.State = string(operator.Failing)
	case event.OutcomeNoAnswer:
		s.State = string(operator.NoAnswer)
	}
	if e.StepAttempt > 0 { // otherwise the step was skipped
		s.Attempts += e.Tries()
	}
	first := e.StartedAt
	if e.Folded != nil {
		first = e.Folded.StartedAt
	}
	if s.FirstTriedAt == nil || first.Before(*s.FirstTriedAt) {
		s.FirstTriedAt = optional(first)
	}
	ms := e.FinishedAt.Sub(e.StartedAt).Milliseconds()
	s.StartedAt, s.FinishedAt, s.DurationMS = optional(e.StartedAt), optional(e.FinishedAt), &ms
	s.Message, s.Error = e.Message, e.Error
}

func stageState(r *store.Row, i int) string {
	if e := r.Ending; e != nil && i < r.Stage {
		// The stages between the failed one and the finally stage did not run.
		switch {
		case i > e.Stage:
			return operator.StateWaiting
		case i == e.Stage && e.Status == event.Failed:
			return operator.StateFailed
		case i == e.Stage:
			return string(event.Cancelled)
		}
	}
	switch {
	case i < r.Stage || r.Status == event.Succeeded:
		return operator.StateFinished
	case i > r.Stage || r.Status == event.Pending:
		return operator.StateWaiting
	case r.Status == event.Failed:
		return operator.StateFailed
	case r.Status == event.Cancelled:
		return string(event.Cancelled)
	default:
		return operator.StateCurrent
	}
}

// status returns the status of an operation for the bus.
func status(r *store.Row, p *process.Process) event.OperationStatus {
	s := event.OperationStatus{
		OperationID: r.Operation.ID, State: r.Status, Cursor: r.Cursor, Position: r.Position(p),
		Message: r.Message, Error: r.Error, NotCompleted: slices.Clone(r.NotCompleted), Stages: engine.Stages(p),
	}
	if r.Status.Final() {
		s.Details = r.Details
	}
	s.UnsettledUntil = optional(r.UnsettledUntil())
	if r.InFlight() {
		s.Worker = engine.Next(p, &r.State).Worker
	}
	return s
}
