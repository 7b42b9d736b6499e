package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
)

// skew is the tolerated difference of the orchestrators' clocks.
const skew = time.Minute

// since returns the time from which a new consumer gets facts: when the first webhook became active, unless messages of that
// time may be forgotten, so that they would be sent again.
func since(active []Webhook, now time.Time) time.Time {
	first := now
	for i := range active {
		if at := active[i].ActiveSince; at.Before(first) {
			first = at
		}
	}
	if oldest := now.Add(-Kept + time.Hour); first.Before(oldest) {
		first = oldest
	}
	return first.Add(-skew)
}

// activeAt reports whether an active webhook gets the facts of a time.
func (w *Webhook) activeAt(t time.Time) bool { return !t.Before(w.ActiveSince.Add(-skew)) }

// follow consumes the facts that webhooks need until ctx ends.
func (s *Service) follow(ctx context.Context) error {
	var running sync.WaitGroup
	stop := func() {}
	defer func() { stop(); running.Wait() }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var current []string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.changed:
		case <-timer.C:
		}
		timer.Reset(idle)
		limited, cancel := context.WithTimeout(ctx, storeTimeout)
		webhooks, err := s.deps.Store.Webhooks(limited)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				s.deps.Log.Warn("webhooks not read", "err", err)
			}
			continue
		}
		s.meter.states(webhooks)
		active := activeOf(webhooks)
		wanted := subjects(active)
		if slices.Equal(wanted, current) {
			continue
		}
		stop()
		running.Wait()
		stop = func() {}
		if len(wanted) == 0 {
			// A running Consume creates a consumer again that is deleted.
			limited, cancel := context.WithTimeout(ctx, storeTimeout)
			err := s.deps.Consumer.Follow(limited, nil, time.Time{})
			cancel()
			if err != nil {
				s.deps.Log.Warn("facts for webhooks are still followed", "err", err)
				continue // current stays, so that the next round tries again
			}
		}
		if current = wanted; len(wanted) == 0 {
			continue
		}
		consuming, cancelConsuming := context.WithCancel(ctx)
		stop = cancelConsuming
		running.Go(func() {
			if err := s.deps.Consumer.Consume(consuming, wanted, since(active, s.deps.Now()), s.route); err != nil && ctx.Err() == nil {
				s.deps.Log.Error("facts for webhooks not consumed", "err", err)
			}
		})
	}
}

// routeRetry is the delay of a redelivery after the database did not accept messages.
const routeRetry = time.Second

// route stores a batch of facts for the webhooks that they match, and acknowledges them.
func (s *Service) route(ctx context.Context, batch []Delivery) {
	n, err := s.queue(ctx, batch)
	if err != nil && ctx.Err() == nil {
		s.deps.Log.Warn("facts for webhooks not stored, they will be redelivered", "facts", len(batch), "err", err)
	}
	for _, d := range batch {
		var settled error
		if err != nil {
			settled = d.Nak(routeRetry)
		} else {
			settled = d.Ack()
		}
		if settled != nil {
			s.deps.Log.Debug("fact not acknowledged", "err", settled)
		}
	}
	if n > 0 {
		s.Wake()
	}
}

// candidate is a fact that a webhook selects, unless its operation has another plan or account.
type candidate struct {
	event *cloudevents.Event
	fact  *Fact
	hook  *Webhook
	kind  Kind
}

func (s *Service) queue(ctx context.Context, batch []Delivery) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	// The webhooks are read for each batch, so that a new one gets the facts from then on.
	webhooks, err := s.deps.Store.Webhooks(ctx)
	if err != nil {
		return 0, err
	}
	active := activeOf(webhooks)
	var found []candidate
	var ids []string
	for _, d := range batch {
		e, _ := d.Message()
		fact, kinds, ok := readFact(&e)
		if !ok {
			continue // the broker moves unreadable facts to the dead letters
		}
		for i := range active {
			hook := &active[i]
			kind, ok := hook.Filter.selects(kinds, fact.OperationType)
			if ok && hook.activeAt(fact.OccurredAt) {
				found, ids = append(found, candidate{event: &e, fact: &fact, hook: hook, kind: kind}), append(ids, fact.OperationID)
			}
		}
	}
	if len(found) == 0 {
		return 0, nil
	}
	slices.Sort(ids)
	about, err := s.deps.Store.About(ctx, slices.Compact(ids))
	if err != nil {
		return 0, err
	}
	messages := make([]Message, 0, len(found))
	for _, c := range found {
		a, known := about[c.fact.OperationID]
		if !known || !c.hook.Filter.selectsAbout(&a) {
			continue // the operation of an unknown one is archived
		}
		e, err := outgoing(c.event, c.fact, c.kind, &a, s.link("operations/"+c.fact.OperationID))
		if err != nil {
			s.deps.Log.Error("fact cannot be sent to a webhook", "event_id", c.event.ID(), "webhook_id", c.hook.ID, "err", err)
			continue
		}
		m, err := s.message(c.hook, c.kind, c.fact.key(c.kind, c.event.ID()), &e)
		if err != nil {
			return 0, err
		}
		messages = append(messages, m)
	}
	if len(messages) == 0 {
		return 0, nil
	}
	return s.deps.Store.Queue(ctx, messages)
}

func (s *Service) message(hook *Webhook, kind Kind, key string, e *cloudevents.Event) (Message, error) {
	encoded, err := json.Marshal(e)
	if err != nil {
		return Message{}, fmt.Errorf("encode the event: %w", err)
	}
	return Message{
		WebhookID: hook.ID, ID: messageID(hook.ID, key), Subject: e.Subject(), Kind: kind, Event: string(encoded), CreatedAt: s.deps.Now().UTC(),
		State: Waiting,
	}, nil
}

// announce stores new states of orchestrations for the webhooks that select them.
func (s *Service) announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	n, err := s.deps.Store.Announce(ctx, func(changes []Change) ([]Message, error) {
		webhooks, err := s.deps.Store.Webhooks(ctx)
		if err != nil {
			return nil, err
		}
		active := activeOf(webhooks)
		var messages []Message
		for i := range changes {
			c := &changes[i]
			e, err := changed(c, s.link("orchestrations/"+c.OrchestrationID))
			if err != nil {
				return nil, err
			}
			for j := range active {
				hook := &active[j]
				if _, ok := hook.Filter.selects([]Kind{Orchestration}, c.Type); !ok || !hook.activeAt(c.OccurredAt) {
					continue
				}
				m, err := s.message(hook, Orchestration, e.ID(), &e)
				if err != nil {
					return nil, err
				}
				messages = append(messages, m)
			}
		}
		return messages, nil
	})
	if n > 0 {
		s.Wake()
	}
	return err
}

func (s *Service) link(path string) string {
	if s.cfg.PublicURL == "" {
		return ""
	}
	return s.cfg.PublicURL + "/console/" + path
}
