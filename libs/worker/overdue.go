package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/event"
)

// begin records that the step of a command runs. Unless the timer is stopped, the step is abandoned when it has not returned overdueGrace
// after the deadline of its command.
func (p *pool) begin(t *taken, cancel context.CancelCauseFunc) *time.Timer {
	p.w.metrics.running.Inc()
	p.mu.Lock()
	defer p.mu.Unlock()
	t.cancel = cancel
	t.overdue = time.AfterFunc(t.executeBefore.Sub(p.w.now())+p.w.overdueGrace, func() { p.abandon(t) })
	return t.overdue
}

// extend asks the orchestrator for more time for a running step.
func (p *pool) extend(ctx context.Context, t *taken, request event.ExtendRequest) (time.Time, error) {
	var answer event.ExtendAnswer
	subject := event.AskExtendAs(p.w.cfg.Name)
	if err := ask(ctx, subject, func(ctx context.Context) error { return p.w.deps.Bus.Ask(ctx, subject, request, &answer) }); err != nil {
		return time.Time{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !answer.ExecuteBefore.After(t.executeBefore) {
		return t.executeBefore, nil
	}
	t.executeBefore = answer.ExecuteBefore
	if t.overdue.Stop() {
		t.overdue.Reset(t.executeBefore.Sub(p.w.now()) + p.w.overdueGrace)
	}
	return t.executeBefore, nil
}

// returned records that the step of a command has returned, and reports whether that was too late: it was abandoned, or the process was
// frozen when it should have been.
func (p *pool) returned(t *taken) (late bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.cancel = nil
	if t.left {
		p.w.metrics.abandoned.Dec()
	} else {
		p.w.metrics.running.Dec()
	}
	return t.left || !p.w.now().Before(t.executeBefore.Add(p.w.overdueGrace))
}

// leave frees the slot of a command, unless it was abandoned before.
func (p *pool) leave(t *taken) {
	p.mu.Lock()
	left := t.left
	t.left = true
	p.mu.Unlock()
	if !left {
		<-p.slots
		p.steps.Done()
	}
}

// abandon frees the slot of a step that did not return. Its goroutine cannot be ended: it is counted until it returns.
func (p *pool) abandon(t *taken) {
	p.mu.Lock()
	runs, until := t.cancel != nil && !t.left, t.executeBefore
	again := t.trial
	if runs {
		t.left = true
		p.w.metrics.running.Dec()
		p.w.metrics.abandoned.Inc()
	}
	p.mu.Unlock()
	if !runs {
		return
	}
	p.w.log.Error("step did not return after its time limit and is abandoned", append(t.logArgs(),
		"worker", p.w.cfg.Name, "running_since", t.since, "execute_before", until)...)
	again.abandoned()
	<-p.slots
	p.steps.Done()
}

// awaitWanted reports whether the orchestrator still waits for the result of an abandoned step that has returned. It asks until there is an
// answer or the worker stops.
func (p *pool) awaitWanted(t *taken) bool {
	for {
		if current, answered := p.askCurrent(p.publishCtx, publishTimeout, []*taken{t}).current[t.ref()]; answered {
			p.w.log.Warn("abandoned step returned", append(t.logArgs(), "ran_for", time.Since(t.since), "result_counts", current)...)
			return current
		}
		if waitFor(p.closed, uncheckedDelay) {
			return false
		}
	}
}

// cancelCommand ends the context of the step that executes the command of a notice, if this process has it.
func (p *pool) cancelCommand(n event.CancelNotice) {
	p.mu.Lock()
	t := p.taken[event.CommandID(n.OperationID, n.Cursor)]
	var cancel context.CancelCauseFunc
	if t != nil {
		cancel = t.cancel
	}
	p.mu.Unlock()
	if cancel == nil {
		return
	}
	p.w.log.Info("step cancelled", append(t.logArgs(), "text", n.Reason)...)
	cancel(fmt.Errorf("%w: %s", ErrCancelled, n.Reason))
}

// hearCancels passes notices of cancelled commands to cancel until stop is called.
func (w *Worker) hearCancels(cancel func(event.CancelNotice)) (stop func(), err error) {
	subject := event.CancelSubject(w.cfg.Name)
	sub, err := w.deps.Bus.NATS().Subscribe(subject, func(m *nats.Msg) {
		var n event.CancelNotice
		if err := json.Unmarshal(m.Data, &n); err != nil {
			w.log.Warn("notice of a cancelled command is unreadable", "worker", w.cfg.Name, "err", err)
			return
		}
		cancel(n)
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	return func() {
		if err := sub.Unsubscribe(); err != nil {
			w.log.Debug("unsubscribe failed", "subject", subject, "err", err)
		}
	}, nil
}
