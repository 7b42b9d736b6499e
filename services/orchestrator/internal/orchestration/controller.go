package orchestration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/replica"
)

const (
	// idle is the longest time between two checks for orchestrations. It covers an orchestration whose orchestrator was killed.
	idle = 10 * time.Second
	// refresh is the interval at which the targets of a scheduled orchestration are looked up again.
	refresh = 5 * time.Minute
	// parallel is the number of orchestrations that one controller works on in parallel.
	parallel = 3
	// missing is how long a recorded operation may take to arrive before the broker is asked again.
	missing = time.Minute
	// validFor is how long a broker may take to record an operation, and recordTimeout when the controller relies on that: clocks may differ.
	validFor, recordTimeout = 30 * time.Second, time.Minute
	// Limits of requests (libs/event).
	instancesPerPage, shootsPerQuestion, upgradesPerQuestion = 1000, 1000, 100
)

// Store stores orchestrations and their members. Each method reads and writes under a lock of the orchestration.
type Store interface {
	replica.Orders
	Get(ctx context.Context, id string) (*Orchestration, error)
	// Assign replaces the members of a pending orchestration. An instance that is already a member keeps its operation ID.
	Assign(ctx context.Context, o *Orchestration, members []*Member) error
	// Describe sets the description of an orchestration that is neither paused nor ended. due is when the targets of a pending orchestration are
	// looked up next. seen is the state that the description belongs to: a cancellation that the caller has not seen keeps its description.
	Describe(ctx context.Context, id string, seen State, description string, due, now time.Time) error
	// NotificationFailed stores that the announcement of an orchestration has failed, and returns when it failed first.
	NotificationFailed(ctx context.Context, id string, now time.Time) (since time.Time, err error)
	// CancelNotified stores that customers need no further notice of the cancellation of an orchestration. It needs no lock.
	CancelNotified(ctx context.Context, id string) error
	// Settle updates the members in progress whose operations have ended, and returns the number of members by state. Members whose operations
	// were withdrawn wait again; they are not counted.
	Settle(ctx context.Context, id string, now time.Time) (Stats, error)
	// Missed returns waiting members that are due and whose window has ended.
	Missed(ctx context.Context, id string, now time.Time, limit int) ([]*Member, error)
	// Postpone stores when waiting members are due.
	Postpone(ctx context.Context, members []*Member, now time.Time) error
	// Claim changes due members to in progress, as many as Orchestration.Admit allows, and returns their number. It stores what Admit changes.
	Claim(ctx context.Context, id string, now time.Time) (int, error)
	// Unrecorded returns members in progress that the broker has not confirmed, or that it confirmed before a time and whose operation has
	// not arrived.
	Unrecorded(ctx context.Context, id string, before time.Time) ([]*Member, error)
	// Recorded stores the broker's answers. refused contains the reasons by operation ID.
	Recorded(ctx context.Context, recorded []string, refused map[string]string, now time.Time) error
	// NotRecorded stores that the broker does not know the operations of members in progress. They wait again with new operations. If the
	// orchestration is being cancelled, they are canceled. It returns the number of members by their new states.
	NotRecorded(ctx context.Context, id string, operations []string, now time.Time) (Stats, error)
	// Queued returns the operations of members in progress that are pending. If fresh, it omits those that have started before and are retried.
	// If windowEnd is not zero, it returns only those whose window has ended by then.
	Queued(ctx context.Context, id string, fresh bool, windowEnd time.Time) ([]string, error)
	// Conclude ends the orchestration if all of its members have ended. Otherwise it returns when the next waiting member is due, zero if
	// none waits, and the number of members in progress. seen is the state that the caller has handled: a cancellation that it has not seen
	// does not end.
	Conclude(ctx context.Context, id string, seen State, now time.Time) (o *Orchestration, due time.Time, inProgress int, err error)
}

// Asker sends requests to other services.
type Asker interface {
	Ask(ctx context.Context, subject string, request, answer any) error
}

// Config contains the settings of a Controller.
type Config struct {
	// Every is the longest time between two checks of an orchestration with members in progress.
	Every time.Duration
	// Patience limits one round of an orchestration. The look-up of its targets may take six times as long.
	Patience time.Duration
	// Policy contains the maintenance windows; nil uses those of the shoots.
	Policy *Policy
}

// Deps contains the dependencies of a Controller. All are required except Registerer.
type Deps struct {
	Store Store
	Asker Asker
	// Cancel cancels an operation that has not ended. Withdraw cancels it only if it has not started.
	Cancel, Withdraw func(ctx context.Context, operationID, reason string) error
	Now              func() time.Time
	Log              *slog.Logger
	Registerer       prometheus.Registerer
}

// Controller drives orchestrations; Run starts it. Any number of controllers may run, in any number of processes. Only one of them runs a round of an
// orchestration at a time, and it commits every decision before acting on it.
type Controller struct {
	*replica.Rounds

	cfg   Config
	deps  Deps
	ended *prometheus.CounterVec
}

// NewController returns a Controller. Run starts it.
func NewController(cfg Config, deps Deps) (*Controller, error) {
	c := &Controller{cfg: cfg, deps: deps}
	c.Rounds = replica.NewRounds(replica.RoundsConfig{
		What: "orchestration", Every: cfg.Every, Idle: idle, Parallel: parallel, Timeout: cfg.Patience, RoundTimeout: 8 * cfg.Patience,
	}, deps.Store, c.work, deps.Now, deps.Log)
	c.ended = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "keb_orchestration_operations_finished_total", Help: "Operations of orchestrations that have ended, by state.",
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

// work runs one round of an orchestration.
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
		// The orchestration has started. The look-up may have used up the time of the round.
		limited, cancel = context.WithTimeout(ctx, c.cfg.Patience)
		defer cancel()
	}
	if o.State.Final() {
		return c.deps.Now().Add(idle), nil
	}
	return c.advance(limited, o)
}

// postpone describes why the targets of an orchestration are unknown.
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
	if err := c.deps.Store.Describe(limited, o.ID, o.State, text, due, now); err != nil {
		return due, errors.Join(cause, err)
	}
	if o.Description != text {
		c.deps.Log.Warn("orchestration not started", "orchestration_id", o.ID, "err", cause)
	}
	return due, nil
}

// advance settles what has ended, and starts due members within the limit of workers.
func (c *Controller) advance(ctx context.Context, o *Orchestration) (time.Time, error) {
	s, now := c.deps.Store, c.deps.Now()
	settled, err := s.Settle(ctx, o.ID, now)
	if err != nil {
		return time.Time{}, err
	}
	for state, n := range settled {
		c.ended.WithLabelValues(string(state)).Add(float64(n))
	}
	switch {
	case o.State == Canceling:
		if err = c.cancelQueued(ctx, o); err == nil {
			if err = c.notifyCancelled(ctx, o, now); err != nil {
				err = errors.Join(err, c.explain(ctx, o, err))
			}
		}
	case o.State == Paused:
		err = c.withdraw(ctx, o, time.Time{}, PausedReason)
	case o.Parameters.Strategy.MaintenanceWindow:
		err = c.withdraw(ctx, o, now, MissedReason)
	}
	if err != nil {
		return time.Time{}, err
	}
	// Members claimed in an earlier round without an answer come first. A paused orchestration starts none.
	var askErr error
	for o.State != Paused {
		freed, err := c.record(ctx, o)
		if err != nil {
			askErr = err
			break
		}
		claimed, err := c.claim(ctx, o)
		if err != nil {
			return time.Time{}, err
		}
		if claimed == 0 && freed == 0 {
			break
		}
	}
	if errors.Is(askErr, errStopped) {
		askErr = nil
	}
	err = c.explain(ctx, o, askErr)
	ended, due, inProgress, concludeErr := s.Conclude(ctx, o.ID, o.State, c.deps.Now())
	if err = errors.Join(askErr, err, concludeErr); err != nil {
		return time.Time{}, err
	}
	if ended.State.Final() {
		c.deps.Log.Info("orchestration ended", "orchestration_id", o.ID, "state", string(ended.State), "description", ended.Description)
		return c.deps.Now().Add(idle), nil
	}
	if ended.State == Canceling && o.State != Canceling {
		return c.deps.Now(), nil // it was cancelled meanwhile: handle that before it ends
	}
	if ended.State == Paused && o.State != Paused {
		c.deps.Log.Info("orchestration paused", "orchestration_id", o.ID, "description", ended.Description)
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

const (
	// notStarted is the prefix of the description of an orchestration while requests to the broker fail.
	notStarted = "operations cannot be started now: "
	// notEnded precedes the error in the description of a cancelled orchestration while requests to other services fail.
	notEnded = "; it cannot end now: "
)

// explain sets the description when operations cannot be started, or when a cancellation cannot end, and resets it when they can.
func (c *Controller) explain(ctx context.Context, o *Orchestration, askErr error) error {
	text := o.Description
	switch {
	case o.State == Canceling:
		if text = CanceledDescription; askErr != nil {
			text += notEnded + askErr.Error()
		}
	case askErr != nil:
		text = notStarted + askErr.Error()
	case strings.HasPrefix(o.Description, notStarted):
		text = ""
	}
	if text == o.Description || o.State == Paused {
		return nil
	}
	return c.deps.Store.Describe(ctx, o.ID, o.State, text, time.Time{}, c.deps.Now())
}

// claim changes due members to in progress. Members that have missed their window wait for the next one.
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
	return c.deps.Store.Claim(ctx, o.ID, now)
}

// errStopped ends a round whose orchestration was paused or cancelled meanwhile.
var errStopped = errors.New("the orchestration is paused or cancelled")

// record asks the broker to record the operations of members in progress that it has not confirmed. If the orchestration is being cancelled, or
// the window of a member has ended, it only asks which operations are recorded, and cancels the others or plans them again. It returns the
// number of members that are no longer in progress.
func (c *Controller) record(ctx context.Context, o *Orchestration) (freed int, err error) {
	members, err := c.deps.Store.Unrecorded(ctx, o.ID, c.deps.Now().Add(-missing))
	if err != nil {
		return 0, err
	}
	for len(members) > 0 {
		// A pause or a cancellation also applies to members that are already claimed. A request in flight is not withdrawn.
		current, err := c.deps.Store.Get(ctx, o.ID)
		if err != nil || current.State == Paused || current.State == Canceling && o.State != Canceling {
			return freed, cmp.Or(err, errStopped)
		}
		n := min(len(members), upgradesPerQuestion)
		orders, unsure := ordersAndUnsure(o, members[:n], c.deps.Now())
		for _, r := range []struct {
			members     []*Member
			confirmOnly bool
		}{{orders, false}, {unsure, true}} {
			m, err := c.ask(ctx, o, r.members, r.confirmOnly)
			if err != nil {
				return freed, err
			}
			freed += m
		}
		members = members[n:]
	}
	return freed, nil
}

// ordersAndUnsure returns the members to order, and those to check only. Until recordTimeout has passed since the cancellation or the end of the
// window, the broker may still record an earlier request, so such members are in neither list.
func ordersAndUnsure(o *Orchestration, members []*Member, now time.Time) (orders, unsure []*Member) {
	before := now.Add(-recordTimeout)
	for _, m := range members {
		switch {
		case o.State == Canceling && o.UpdatedAt.After(before):
		case o.State == Canceling || m.missed(before):
			unsure = append(unsure, m)
		case !m.missed(now):
			orders = append(orders, m)
		}
	}
	return orders, unsure
}

// ask asks the broker to record operations or, if confirmOnly is set, which of them are recorded. It returns the number of members that are no
// longer in progress.
func (c *Controller) ask(ctx context.Context, o *Orchestration, members []*Member, confirmOnly bool) (freed int, err error) {
	if len(members) == 0 {
		return 0, nil
	}
	request := event.UpgradeRequest{Upgrades: make([]event.UpgradeOrder, len(members)), ConfirmOnly: confirmOnly, ExpiresAt: c.deps.Now().Add(validFor)}
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
	var recorded, unknown []string
	refused := map[string]string{}
	for _, a := range answer.Upgrades {
		switch {
		case !asked[a.OperationID]:
			return 0, fmt.Errorf("ask %s: the answer contains operation %.50q, which was not requested", event.AskUpgrade, a.OperationID)
		case a.Refused != "" && confirmOnly:
			unknown = append(unknown, a.OperationID)
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
	if freed = len(refused); len(unknown) > 0 {
		stats, err := c.deps.Store.NotRecorded(ctx, o.ID, unknown, c.deps.Now())
		if err != nil {
			return 0, err
		}
		c.ended.WithLabelValues(string(Canceled)).Add(float64(stats[Canceled]))
		freed += stats[Canceled] + stats[Pending]
	}
	if n := len(members) - len(recorded) - len(refused) - len(unknown); n > 0 {
		return 0, fmt.Errorf("ask %s: the answer lacks %d of %d operations", event.AskUpgrade, n, len(members))
	}
	return freed, nil
}

// cancelQueued cancels operations that have been recorded but not started. An operation that starts in the meantime is cancelled at its
// next result, and its process cleans up.
func (c *Controller) cancelQueued(ctx context.Context, o *Orchestration) error {
	queued, err := c.deps.Store.Queued(ctx, o.ID, false, time.Time{})
	if err != nil {
		return err
	}
	return endAll(ctx, queued, c.deps.Cancel, "orchestration "+o.ID+" was cancelled")
}

// withdraw cancels operations that have been recorded but not started. Their members wait again. If windowEnd is not zero, only operations whose
// window has ended by then are cancelled.
func (c *Controller) withdraw(ctx context.Context, o *Orchestration, windowEnd time.Time, reason string) error {
	queued, err := c.deps.Store.Queued(ctx, o.ID, true, windowEnd)
	if err != nil {
		return err
	}
	return endAll(ctx, queued, c.deps.Withdraw, reason)
}

func endAll(ctx context.Context, operations []string, end func(ctx context.Context, id, reason string) error, reason string) error {
	for _, id := range operations {
		if err := end(ctx, id, reason); err != nil {
			return err
		}
	}
	return nil
}

// assign looks up the targets of a pending orchestration, and starts it if its time has come.
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
		next.State, next.DueAt, next.Description = InProgress, time.Time{}, ""
		next.StartedAt, next.ActiveSince, next.Members = now, now, len(members)
		for _, m := range members {
			if m.State == Skipped {
				next.Members--
			}
		}
	}
	if err := c.deps.Store.Assign(ctx, &next, members); err != nil {
		return err
	}
	c.deps.Log.Info("orchestration has its members", "orchestration_id", o.ID, "state", string(next.State), "members", len(members))
	*o = next
	return nil
}

// targets reads all instances page by page, and returns those that match and can be upgraded.
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
		if !page.Versions && NeedsNewBroker(o.Parameters.Targets) {
			return nil, errors.New("a broker of an earlier release knows no versions and failures of runtimes; update it, or cancel the orchestration")
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
			return nil, fmt.Errorf("ask %s: the page after %.50q does not advance", event.AskInstances, request.After)
		}
		request.After = page.Next
	}
}

// windows requests the windows of the instances' shoots. It ignores invalid ones.
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
				c.deps.Log.Warn("maintenance window of a shoot is invalid", "shoot", w.ShootName, "err", err)
				continue
			}
			windows[w.ShootName] = window
		}
		shoots = shoots[n:]
	}
	return windows, nil
}
