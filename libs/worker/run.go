package worker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
)

// run executes one command in a slot of the pool. stop ends when the worker stops.
func (p *pool) run(stop context.Context, t *taken) {
	defer p.leave(t)
	if p.w.limiter != nil {
		if err := p.w.limiter.Wait(stop); err != nil {
			p.spare(t)
			p.giveBack(t, 0)
			return
		}
		// The deadline may have passed while the command waited.
		if p.dropLate(t) {
			p.forget(t)
			return
		}
	}
	again, fate := p.try(t)
	switch fate {
	case executed:
	case postponed:
		p.giveBack(t, busyDelay)
		return
	case quarantined:
		r := p.quarantine(t)
		p.finish(t, &r, "")
		return
	}
	ctx, span := p.startSpan(t)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer p.begin(t, cancel).Stop()
	reports := &progress{send: p.w.notifyProgress, every: progressEvery}
	defer reports.close()
	r := Execute(ctx, t.step, Execution{
		Command:  p.commandOf(t),
		Worker:   event.Worker{Name: p.w.cfg.Name, Version: p.w.cfg.Version},
		Memory:   p.w.memoryFor(&t.command),
		Claim:    p.w.claim,
		Keep:     p.w.keep,
		Kept:     p.w.kept,
		Progress: reports.report,
		Extend: func(ctx context.Context, request event.ExtendRequest) (time.Time, error) {
			return p.extend(ctx, t, request)
		},
		Log:    p.logOf(t, span),
		Now:    p.w.deps.Now,
		wanted: func() bool { return !p.returned(t) || p.awaitWanted(t) },
	})
	endSpan(span, &r)
	again.end(r.interrupted)
	if r.unwanted {
		p.forget(t)
		return
	}
	if r.interrupted {
		p.w.log.Info("step interrupted, its command is returned", t.logArgs()...)
		p.spare(t)
		p.giveBack(t, 0)
		return
	}
	p.w.metrics.executed(t.command.Step, &r, r.FinishedAt.Sub(r.StartedAt))
	p.w.logOutcome(t, &r)

	p.finish(t, &r, traceOfResult(t, span))
}

// commandOf returns the command with its current time limit.
func (p *pool) commandOf(t *taken) event.StepExecute {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := t.command
	c.ExecuteBefore = t.executeBefore
	return c
}

// finish passes a result on for its publication.
func (p *pool) finish(t *taken, r *Result, parent string) {
	message, err := p.w.message(t, r, parent)
	if err != nil {
		p.w.log.Error("result cannot be encoded", append(t.logArgs(), "err", err)...)
		p.giveBack(t, unpublishedDelay)
		return
	}
	select {
	case p.results <- finished{taken: t, message: message}:
	case <-p.closed:
	}
}

// message returns the result as a message for the bus.
func (w *Worker) message(t *taken, r *Result, parent string) (bus.Message, error) {
	id := t.dispatchID()
	kind, payload := r.Payload()
	e, err := bus.New(kind, id, event.WorkerSource(w.cfg.Name), r.OperationID, r.FinishedAt, payload)
	if err != nil {
		return bus.Message{}, err
	}
	if parent != "" {
		e.SetExtension(bus.TraceParent, parent)
	}
	return bus.Message{Subject: event.ResultSubject(w.cfg.Name, t.command.Step), ID: id, Event: e}, nil
}

// logOutcome logs a result. It skips the common case, which would cost time in the hot path.
func (w *Worker) logOutcome(t *taken, r *Result) {
	level := slog.LevelDebug
	switch {
	case r.Outcome == event.OutcomeFailed:
		level = slog.LevelError
	case r.Error != nil:
		level = slog.LevelWarn
	case r.Outcome == event.OutcomeStageLost:
		level = slog.LevelInfo
	}
	if !w.log.Enabled(context.Background(), level) {
		return
	}
	args := append(t.logArgs(), "outcome", r.Outcome, "took", r.FinishedAt.Sub(r.StartedAt))
	if r.Outcome == event.OutcomeRetry {
		args = append(args, "retry_after", r.RetryAfter)
	}
	if r.Message != "" {
		args = append(args, "text", r.Message)
	}
	if r.Error != nil {
		args = append(args, "component", r.Error.Component, "reason", r.Error.Reason, "err", r.Error.Message)
	}
	w.log.Log(context.Background(), level, "step ended", args...)
}

// claim requests credentials from the broker.
func (w *Worker) claim(ctx context.Context, request event.CredentialsRequest) (json.RawMessage, error) {
	var answer event.CredentialsAnswer
	if err := w.askBroker(ctx, event.AskCredentialsAs(w.cfg.Name), request, &answer); err != nil {
		return nil, err
	}
	if len(answer.Credentials) == 0 {
		return nil, errors.New("the broker's answer holds no credentials")
	}
	return answer.Credentials, nil
}

// keep stores a value in the broker.
func (w *Worker) keep(ctx context.Context, request event.KeepRequest) error {
	return w.askBroker(ctx, event.AskKeepAs(w.cfg.Name), request, &event.KeepAnswer{})
}

// kept requests the kept value from the broker.
func (w *Worker) kept(ctx context.Context, request event.KeptRequest) (json.RawMessage, error) {
	var answer event.KeptAnswer
	err := w.askBroker(ctx, event.AskKeptAs(w.cfg.Name), request, &answer)
	if refusal, ok := errors.AsType[*bus.AskError](err); ok && refusal.Message == event.KeptBroken {
		err = ErrKeptBroken
	}
	return answer.Value, err
}

// notifyProgress reports how far a step is. A lost report does no harm.
func (w *Worker) notifyProgress(n event.ProgressNotice) {
	if !w.deps.Bus.NATS().IsConnected() {
		return // it would be outdated when the connection is back
	}
	if err := w.deps.Bus.Notify(event.ProgressSubject(w.cfg.Name), n); err != nil {
		w.log.Debug("progress not reported", "operation_id", n.OperationID, "err", err)
	}
}

func (w *Worker) askBroker(ctx context.Context, subject string, request, answer any) error {
	return ask(ctx, subject, func(ctx context.Context) error { return w.deps.Bus.Ask(ctx, subject, request, answer) })
}
