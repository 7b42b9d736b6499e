package orchestration

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
)

const (
	// idle is the longest time between two looks for orchestrations, another orchestrator may have taken one in and died.
	idle = 10 * time.Second
	// shortest is the shortest time between two looks, so that operations that end together make one round.
	shortest = 20 * time.Millisecond
	// refresh is the time between two look-ups of the targets of an orchestration that is scheduled for later.
	refresh = 5 * time.Minute
	// rounds is how many orchestrations one controller works on at the same time.
	rounds = 3
	// missing is how long an operation that the broker has recorded may take to arrive before the broker is asked again.
	missing = time.Minute
	// Sizes of questions (libs/event).
	instancesPerPage, shootsPerQuestion, upgradesPerQuestion = 1000, 1000, 100
)

// Store keeps orchestrations and their members. What a method decides on it reads under a lock of the orchestration.
type Store interface {
	// Active names the orchestrations that have not ended.
	Active(ctx context.Context) ([]string, error)
	// Exclusively runs f unless somebody else runs it for this orchestration, in any process; it tells whether it has.
	Exclusively(ctx context.Context, id string, f func(ctx context.Context) error) (bool, error)
	Get(ctx context.Context, id string) (*Orchestration, error)
	// Assign replaces the members of a pending orchestration; an instance that is a member already keeps its operation id.
	Assign(ctx context.Context, o *Orchestration, members []*Member) error
	// Describe sets the description of an orchestration that is neither being canceled nor has ended; due is when the targets of
	// a pending one are looked up next.
	Describe(ctx context.Context, id, description string, due, now time.Time) error
	// Settle takes over how the operations of members in progress have ended, and returns how many of each state.
	Settle(ctx context.Context, id string, now time.Time) (Stats, error)
	// Missed returns waiting members that are due and whose window has ended.
	Missed(ctx context.Context, id string, now time.Time, limit int) ([]*Member, error)
	// Postpone writes when waiting members are due.
	Postpone(ctx context.Context, members []*Member, now time.Time) error
	// Claim makes as many due members in progress as workers leaves room for, and returns how many.
	Claim(ctx context.Context, id string, workers int, now time.Time) (int, error)
	// Unrecorded returns members in progress that the broker has not confirmed, or confirmed before a time although the
	// operation has not arrived.
	Unrecorded(ctx context.Context, id string, before time.Time) ([]*Member, error)
	// Recorded writes what the broker has answered: refused is the reason by operation id.
	Recorded(ctx context.Context, recorded []string, refused map[string]string, now time.Time) error
	// Queued names the operations of members in progress that wait for their turn.
	Queued(ctx context.Context, id string) ([]string, error)
	// Conclude ends the orchestration if all of its members have ended. Otherwise it returns when the next waiting member is
	// due, zero when none waits, and how many are in progress.
	Conclude(ctx context.Context, id string, now time.Time) (o *Orchestration, due time.Time, inProgress int, err error)
}

// Asker asks other services.
type Asker interface {
	Ask(ctx context.Context, subject string, request, answer any) error
}

// Config is how a Controller works.
type Config struct {
	// Every is the longest time between two looks at an orchestration that has members in progress.
	Every time.Duration
	// Patience bounds one round of an orchestration, the look-up of its targets apart, which may take six times as long.
	Patience time.Duration
	// Policy says when runtimes may be disturbed; nil leaves it to their shoots.
	Policy *Policy
}

// Deps is what a Controller works with. All but Registerer are required.
type Deps struct {
	Store Store
	Asker Asker
	// Cancel cancels an operation that waits for its turn.
	Cancel     func(ctx context.Context, operationID, reason string) error
	Now        func() time.Time
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Controller drives orchestrations. Any number of them may run, in any number of processes: each round of an orchestration
// is run by one, and what it does is in the database before it is done.
type Controller struct {
	cfg   Config
	deps  Deps
	wake  chan struct{}
	ended *prometheus.CounterVec
	// told are the orchestrations whose cancellation customers know of already.
	told sync.Map
}

// NewController returns a Controller; Run starts it.
func NewController(cfg Config, deps Deps) (*Controller, error) {
	c := &Controller{cfg: cfg, deps: deps, wake: make(chan struct{}, 1)}
	c.ended = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "keb_orchestration_operations_finished_total", Help: "Operations of orchestrations that have ended, by how.",
	}, []string{"state"})
	for _, state := range []State{Succeeded, Failed, Canceled, Skipped} {
		c.ended.WithLabelValues(string(state))
	}
	if deps.Registerer != nil {
		if err := deps.Registerer.Register(c.ended); err != nil {
			return nil, fmt.Errorf("register the metrics of orchestrations: %w", err)
		}
	}
	return c, nil
}

// Wake makes the controller look at all orchestrations soon. It never blocks.
func (c *Controller) Wake() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// agenda is when the orchestrations are looked at next.
type agenda struct {
	next map[string]time.Time // those in no round; absent means now
	busy map[string]bool      // those in a round; true when there is to be another at once
}

// outcome is the end of a round.
type outcome struct {
	id   string
	next time.Time
}

// Run works until ctx ends, and returns when its rounds have ended.
func (c *Controller) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	done := make(chan outcome, rounds)
	a := agenda{next: map[string]time.Time{}, busy: map[string]bool{}}
	pause := time.NewTimer(0)
	defer pause.Stop()
	hurried := false
	soon := func() {
		if !hurried { // else many that end one after the other would put it off again and again
			hurried = true
			pause.Reset(shortest)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
			clear(a.next)
			for id := range a.busy {
				a.busy[id] = true
			}
			soon()
			continue
		case o := <-done:
			if again := a.busy[o.id]; !again {
				a.next[o.id] = o.next
			}
			delete(a.busy, o.id)
			soon()
			continue
		case <-pause.C:
		}
		hurried = false
		pause.Reset(c.look(ctx, &a, c.deps.Now(), func(id string) {
			running.Go(func() { done <- outcome{id: id, next: c.round(ctx, id)} })
		}))
	}
}

// look starts the rounds that are due, and returns how long nothing else is.
func (c *Controller) look(ctx context.Context, a *agenda, now time.Time, start func(id string)) time.Duration {
	limited, cancel := context.WithTimeout(ctx, c.cfg.Patience)
	defer cancel()
	active, err := c.deps.Store.Active(limited)
	if err != nil {
		if ctx.Err() == nil {
			c.deps.Log.Warn("orchestrations not looked at", "err", err)
		}
		return c.cfg.Every
	}
	wait, next := idle, make(map[string]time.Time, len(active))
	for _, id := range active {
		if _, busy := a.busy[id]; busy {
			continue
		}
		at := a.next[id]
		switch {
		case at.After(now):
			next[id] = at
			wait = min(wait, at.Sub(now))
		case len(a.busy) < rounds:
			a.busy[id] = false
			start(id)
		}
	}
	a.next = next // those that have ended are forgotten
	return max(wait, shortest)
}

// round works once on an orchestration, and returns when it is to be looked at next.
func (c *Controller) round(ctx context.Context, id string) time.Time {
	var next time.Time
	ctx, cancel := context.WithTimeout(ctx, 8*c.cfg.Patience)
	defer cancel()
	ran, err := c.deps.Store.Exclusively(ctx, id, func(ctx context.Context) (err error) {
		next, err = c.work(ctx, id)
		return err
	})
	soon := c.deps.Now().Add(c.cfg.Every)
	if err != nil {
		if ctx.Err() == nil {
			c.deps.Log.Warn("orchestration is taken up again", "orchestration_id", id, "err", err)
		}
		return soon
	}
	if !ran {
		return soon
	}
	return next
}

func (c *Controller) work(ctx context.Context, id string) (time.Time, error) {
	limited, cancel := context.WithTimeout(ctx, c.cfg.Patience)
	defer cancel()
	o, err := c.deps.Store.Get(limited, id)
	if err != nil {
		return time.Time{}, err
	}
	if o.State == Pending {
		if now := c.deps.Now(); o.DueAt.After(now) {
			return o.DueAt, nil
		}
		if err := c.assign(ctx, o); err != nil {
			return c.postpone(ctx, o, err)
		}
		if o.State == Pending {
			return o.DueAt, nil
		}
		// It has begun. The look-up may have taken the time of the round.
		limited, cancel = context.WithTimeout(ctx, c.cfg.Patience)
		defer cancel()
	}
	if o.State.Final() {
		return c.deps.Now().Add(idle), nil
	}
	return c.advance(limited, o)
}

// postpone says why the targets of an orchestration are not known yet.
func (c *Controller) postpone(ctx context.Context, o *Orchestration, cause error) (time.Time, error) {
	if errors.Is(cause, ErrNotPossible) || ctx.Err() != nil {
		return c.deps.Now(), cause
	}
	now := c.deps.Now()
	due := now.Add(c.cfg.Every)
	text := "the targets cannot be looked up now: " + cause.Error()
	if errors.Is(cause, errNotAnnounced) {
		text = cause.Error()
	}
	limited, cancel := context.WithTimeout(ctx, c.cfg.Patience)
	defer cancel()
	if err := c.deps.Store.Describe(limited, o.ID, text, due, now); err != nil {
		return due, errors.Join(cause, err)
	}
	if o.Description != text {
		c.deps.Log.Warn("orchestration has not begun", "orchestration_id", o.ID, "err", cause)
	}
	return due, nil
}

// advance takes over what has ended, and starts what is due as far as there is room.
func (c *Controller) advance(ctx context.Context, o *Orchestration) (time.Time, error) {
	s, now := c.deps.Store, c.deps.Now()
	settled, err := s.Settle(ctx, o.ID, now)
	if err != nil {
		return time.Time{}, err
	}
	for state, n := range settled {
		c.ended.WithLabelValues(string(state)).Add(float64(n))
	}
	if o.State == Canceling {
		if err := c.cancelQueued(ctx, o); err != nil {
			return time.Time{}, err
		}
		if err := c.tellCancelled(ctx, o, now); err != nil {
			return time.Time{}, err
		}
	}
	// Those claimed in an earlier round whose question has not been answered come first.
	var askErr error
	for {
		refused, err := c.record(ctx, o)
		if err != nil {
			askErr = err
			break
		}
		claimed, err := c.claim(ctx, o)
		if err != nil {
			return time.Time{}, err
		}
		if claimed == 0 && refused == 0 {
			break
		}
	}
	err = c.explain(ctx, o, askErr)
	ended, due, inProgress, concludeErr := s.Conclude(ctx, o.ID, c.deps.Now())
	if err = errors.Join(askErr, err, concludeErr); err != nil {
		return time.Time{}, err
	}
	if ended.State.Final() {
		c.deps.Log.Info("orchestration ended", "orchestration_id", o.ID, "state", string(ended.State), "description", ended.Description)
		return c.deps.Now().Add(idle), nil
	}
	now = c.deps.Now()
	next := now.Add(idle)
	if inProgress > 0 {
		next = now.Add(c.cfg.Every)
	}
	if !due.IsZero() && due.After(now) && due.Before(next) {
		next = due
	}
	return next, nil
}

// notStarted begins the description of an orchestration whose operations the broker cannot be asked for.
const notStarted = "operations cannot be started now: "

// explain shows why nothing is started, and takes that back.
func (c *Controller) explain(ctx context.Context, o *Orchestration, askErr error) error {
	text := o.Description
	switch {
	case askErr != nil:
		text = notStarted + askErr.Error()
	case strings.HasPrefix(o.Description, notStarted):
		text = "operations are started again"
	}
	if text == o.Description {
		return nil
	}
	return c.deps.Store.Describe(ctx, o.ID, text, time.Time{}, c.deps.Now())
}

// claim makes due members in progress, those that have missed their window apart: they wait for the next.
func (c *Controller) claim(ctx context.Context, o *Orchestration) (int, error) {
	if o.State == Canceling {
		return 0, nil
	}
	now := c.deps.Now()
	for o.Parameters.Strategy.MaintenanceWindow {
		missed, err := c.deps.Store.Missed(ctx, o.ID, now, instancesPerPage)
		if err != nil {
			return 0, err
		}
		if len(missed) == 0 {
			break
		}
		for _, m := range missed {
			m.plan(now)
		}
		if err := c.deps.Store.Postpone(ctx, missed, now); err != nil {
			return 0, err
		}
	}
	return c.deps.Store.Claim(ctx, o.ID, o.Parameters.Strategy.Parallel.Workers, now)
}

// record asks the broker for the operations of members in progress that it has not confirmed.
func (c *Controller) record(ctx context.Context, o *Orchestration) (refused int, err error) {
	members, err := c.deps.Store.Unrecorded(ctx, o.ID, c.deps.Now().Add(-missing))
	if err != nil {
		return 0, err
	}
	for len(members) > 0 {
		n := min(len(members), upgradesPerQuestion)
		no, err := c.ask(ctx, o, members[:n])
		if err != nil {
			return refused, err
		}
		members, refused = members[n:], refused+no
	}
	return refused, nil
}

func (c *Controller) ask(ctx context.Context, o *Orchestration, members []*Member) (int, error) {
	request := event.UpgradeRequest{Upgrades: make([]event.UpgradeOrder, len(members))}
	for i, m := range members {
		request.Upgrades[i] = event.UpgradeOrder{OperationID: m.OperationID, InstanceID: m.InstanceID, Type: o.Type, Upgrade: o.Upgrade(m)}
	}
	var answer event.UpgradeAnswer
	if err := c.deps.Asker.Ask(ctx, event.AskUpgrade, request, &answer); err != nil {
		return 0, err
	}
	asked := make(map[string]bool, len(members))
	for _, m := range members {
		asked[m.OperationID] = true
	}
	var recorded []string
	refused := map[string]string{}
	for _, a := range answer.Upgrades {
		switch {
		case !asked[a.OperationID]:
			return 0, fmt.Errorf("ask %s: the answer has operation %.50q, which was not asked for", event.AskUpgrade, a.OperationID)
		case a.Refused != "":
			refused[a.OperationID] = a.Refused
		default:
			recorded = append(recorded, a.OperationID)
		}
	}
	if err := c.deps.Store.Recorded(ctx, recorded, refused, c.deps.Now()); err != nil {
		return 0, err
	}
	c.ended.WithLabelValues(string(Skipped)).Add(float64(len(refused)))
	if n := len(members) - len(recorded) - len(refused); n > 0 {
		return 0, fmt.Errorf("ask %s: the answer lacks %d of %d operations", event.AskUpgrade, n, len(members))
	}
	return len(refused), nil
}

// cancelQueued cancels operations that have been recorded but not begun. One that begins meanwhile is cancelled at its next
// result, and its process puts right what it has changed.
func (c *Controller) cancelQueued(ctx context.Context, o *Orchestration) error {
	queued, err := c.deps.Store.Queued(ctx, o.ID)
	if err != nil {
		return err
	}
	for _, id := range queued {
		if err := c.deps.Cancel(ctx, id, "orchestration "+o.ID+" was canceled"); err != nil {
			return err
		}
	}
	return nil
}

// assign looks up the targets of a pending orchestration, and lets it begin if its time has come.
func (c *Controller) assign(ctx context.Context, o *Orchestration) error {
	ctx, cancel := context.WithTimeout(ctx, 6*c.cfg.Patience)
	defer cancel()
	instances, err := c.targets(ctx, o)
	if err != nil {
		return err
	}
	var windows map[string]Window
	if o.Parameters.Strategy.MaintenanceWindow {
		if windows, err = c.windows(ctx, instances); err != nil {
			return err
		}
	}
	now := c.deps.Now()
	members := Candidates(o, c.cfg.Policy, instances, windows, now)
	if err := c.announce(ctx, o, members, now); err != nil {
		return err
	}
	next := *o
	next.UpdatedAt = now
	if start := o.Start(); start.After(now) {
		next.DueAt = start
		if again := now.Add(refresh); again.Before(start) {
			next.DueAt = again
		}
		next.Description = fmt.Sprintf("scheduled for %s, %d operations", start.Format(time.RFC3339), len(members))
	} else {
		next.State, next.DueAt = InProgress, time.Time{}
		next.Description = fmt.Sprintf("%d operations scheduled", len(members))
	}
	if err := c.deps.Store.Assign(ctx, &next, members); err != nil {
		return err
	}
	c.deps.Log.Info("orchestration has its members", "orchestration_id", o.ID, "state", string(next.State), "members", len(members))
	*o = next
	return nil
}

// targets pages through all instances, and keeps those that are meant and can be upgraded.
func (c *Controller) targets(ctx context.Context, o *Orchestration) ([]event.InstanceSummary, error) {
	matcher, err := NewMatcher(o.Parameters.Targets)
	if err != nil {
		return nil, err
	}
	var found []event.InstanceSummary
	request := event.InstancesRequest{Limit: instancesPerPage}
	for {
		var page event.InstancesAnswer
		if err := c.deps.Asker.Ask(ctx, event.AskInstances, request, &page); err != nil {
			return nil, err
		}
		for i := range page.Instances {
			if instance := &page.Instances[i]; instance.State == event.InstanceProvisioned && matcher.Match(instance) {
				found = append(found, *instance)
			}
		}
		if page.Next == "" {
			return found, nil
		}
		if page.Next == request.After {
			return nil, fmt.Errorf("ask %s: the page behind %.50q does not go on", event.AskInstances, request.After)
		}
		request.After = page.Next
	}
}

// windows asks for the windows of the instances' shoots. One that cannot be read counts as none.
func (c *Controller) windows(ctx context.Context, instances []event.InstanceSummary) (map[string]Window, error) {
	var shoots []string
	for i := range instances {
		if name := instances[i].Runtime.ShootName; name != "" {
			shoots = append(shoots, name)
		}
	}
	windows := make(map[string]Window, len(shoots))
	for len(shoots) > 0 {
		n, err := bus.Page(shoots[:min(len(shoots), shootsPerQuestion)])
		if err != nil {
			return nil, err
		}
		var answer event.MaintenanceWindowsAnswer
		err = c.deps.Asker.Ask(ctx, event.AskMaintenanceWindows, event.MaintenanceWindowsRequest{ShootNames: shoots[:n]}, &answer)
		if err != nil {
			return nil, err
		}
		for _, w := range answer.Windows {
			window, err := ShootWindow(w)
			if err != nil {
				c.deps.Log.Warn("maintenance window of a shoot cannot be read", "shoot", w.ShootName, "err", err)
				continue
			}
			windows[w.ShootName] = window
		}
		shoots = shoots[n:]
	}
	return windows, nil
}
