package exchange

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/instance"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

const (
	// rejectionsEvery is the interval of the questions: half of the time within which a new hold applies.
	rejectionsEvery = 500 * time.Millisecond
	// rejectionsTimeout limits one question.
	rejectionsTimeout = 5 * time.Second
)

// RejectionsDeps are the dependencies of Rejections.
type RejectionsDeps struct {
	Store *store.Store
	Bus   *bus.Bus
	Log   *slog.Logger
	Now   func() time.Time
}

// Rejections rejects new orders in the scope of a hold that rejects orders. The orchestrator owns the holds. The broker asks it for them
// twice a second, keeps them in memory, and stores them, so that the last known ones also apply after a restart while the orchestrator or
// the bus is down. Rejections are safe for concurrent use.
type Rejections struct {
	deps       RejectionsDeps
	rejections atomic.Pointer[[]event.Rejection]
	// saved is what the database has. Only Load and Run use it.
	saved []byte
}

// NewRejections returns Rejections that reject nothing.
func NewRejections(deps RejectionsDeps) *Rejections {
	l := &Rejections{deps: deps}
	l.rejections.Store(&[]event.Rejection{})
	return l
}

// Check returns an *osb.Error with the reason of the hold if an order is rejected. The type of a binding is empty. An update has two
// instances, before and after it; the scope of one of them is enough.
func (l *Rejections) Check(order event.OperationType, instances ...*instance.Instance) error {
	found := *l.rejections.Load()
	if len(found) == 0 {
		return nil
	}
	now := l.deps.Now()
	for i := range found {
		r := &found[i]
		if r.Until != nil && !now.Before(*r.Until) || r.Type != "" && r.Type != order {
			continue
		}
		for _, at := range instances {
			if matches(r, at) {
				l.deps.Log.Info("order rejected", "hold_id", r.HoldID, "instance_id", at.ID)
				return osb.Unprocessable("orders are rejected at present: %s", r.Reason)
			}
		}
	}
	return nil
}

func matches(r *event.Rejection, i *instance.Instance) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	return is(r.InstanceID, i.ID) && is(r.GlobalAccountID, i.Context.GlobalAccountID) && is(r.Region, i.Runtime.Region) &&
		(is(r.Plan, i.Plan.Name) || is(r.Plan, i.Plan.ID))
}

// Load reads the last known rejections from the database.
func (l *Rejections) Load(ctx context.Context) error {
	raw, err := l.deps.Store.Rejections(ctx)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	var found []event.Rejection
	if err := json.Unmarshal(raw, &found); err != nil {
		return fmt.Errorf("read rejections of orders: %w", err)
	}
	l.rejections.Store(&found)
	return nil
}

// Run asks for the rejections, at once and then regularly, until ctx ends. While there is no answer, the last known ones apply.
func (l *Rejections) Run(ctx context.Context) error {
	tick := time.NewTicker(rejectionsEvery)
	defer tick.Stop()
	for failing := false; ; {
		err := l.refresh(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !failing:
			l.deps.Log.Warn("rejections of orders not read; the last known ones apply", "err", err)
		case err == nil && failing:
			l.deps.Log.Info("rejections of orders are read again")
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (l *Rejections) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rejectionsTimeout)
	defer cancel()
	found := []event.Rejection{}
	for request := (event.RejectionsRequest{}); ; {
		var answer event.RejectionsAnswer
		if err := l.deps.Bus.AskWithTimeout(ctx, rejectionsTimeout, event.AskRejections, request, &answer); err != nil {
			return err
		}
		found = append(found, answer.Rejections...)
		if !answer.More || len(answer.Rejections) == 0 {
			break
		}
		request.After = found[len(found)-1].HoldID
	}
	l.rejections.Store(&found)
	raw, err := json.Marshal(found)
	if err != nil || bytes.Equal(raw, l.saved) {
		return err
	}
	if err := l.deps.Store.SaveRejections(ctx, raw); err != nil {
		return err
	}
	l.saved = raw
	return nil
}
