package webhook

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// lanes is the number of messages that are sent to a webhook in parallel.
	lanes = 8
	// page is the number of events that are read at once. A killed process repeats at most as many.
	page = 50
	// roundFor is the time after which a round reads no further page.
	roundFor = 10 * time.Second
	// firstPause is the pause after the first failed attempt. It doubles with each attempt, up to maxPause.
	firstPause = time.Second
	maxPause   = 5 * time.Minute
	// maxRejections is the number of times that a receiver may reject a message before it is dropped.
	maxRejections = 8
	// disableAfter is the time without a successful attempt after which a webhook is disabled.
	disableAfter = 3 * 24 * time.Hour
	// MaxWaiting is the number of waiting events at which a webhook is disabled.
	MaxWaiting = 100_000
)

// round sends waiting messages of a webhook, and returns when the next attempt is due.
func (s *Service) round(ctx context.Context, id string) (time.Time, error) {
	w, err := s.deps.Store.Webhook(ctx, id)
	if err != nil {
		return time.Time{}, err
	}
	begun := s.deps.Now()
	if w.State != Active {
		return begun.Add(idle), nil
	}
	if w.DueAt.After(begun) {
		return w.DueAt, nil
	}
	target, err := s.open(w)
	if err != nil { // report the webhook as failing: otherwise its events wait unnoticed
		s.conclude(w, &round{failed: 1, err: err})
		if err := s.deps.Store.Record(ctx, w, nil); err != nil || w.State == Active {
			return w.DueAt, err
		}
		s.refresh(ctx)
		return begun.Add(idle), nil
	}
	for {
		messages, err := s.deps.Store.Next(ctx, id, page)
		if err != nil {
			return time.Time{}, err
		}
		if len(messages) == 0 {
			return s.deps.Now().Add(idle), nil
		}
		isFailing := s.send(ctx, w, target, messages, begun.Add(roundFor))
		if err := s.deps.Store.Record(ctx, w, messages); err != nil {
			return time.Time{}, err
		}
		switch now := s.deps.Now(); {
		case w.State != Active:
			s.refresh(ctx)
			return now.Add(idle), nil
		case isFailing:
			return w.DueAt, nil
		case now.Sub(begun) > roundFor:
			return now, nil
		}
	}
}

// send sends messages until a time, those of one subject one after the other, and sets the results. It reports whether an attempt has failed.
func (s *Service) send(ctx context.Context, w *Webhook, t *Target, messages []Message, until time.Time) (isFailing bool) {
	var order []string
	bySubject := map[string][]*Message{}
	for i := range messages {
		m := &messages[i]
		if bySubject[m.Subject] == nil {
			order = append(order, m.Subject)
		}
		bySubject[m.Subject] = append(bySubject[m.Subject], m)
	}
	var mu sync.Mutex
	r := round{}
	isOver := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return r.isDown || s.deps.Now().After(until)
	}
	var sending sync.WaitGroup
	slots := make(chan struct{}, lanes)
	for _, subject := range order {
		slots <- struct{}{}
		sending.Go(func() {
			defer func() { <-slots }()
			for _, m := range bySubject[subject] {
				if isOver() || ctx.Err() != nil {
					return
				}
				a := s.sender.Send(ctx, w.Format, t, m.ID, m.Event)
				if ctx.Err() != nil && a.err != nil {
					return // the orchestrator stops
				}
				mu.Lock()
				s.result(w, m, &a, &r)
				mu.Unlock()
				if m.State == Waiting {
					return // the next ones must not overtake it
				}
			}
		})
	}
	sending.Wait()
	s.conclude(w, &r)
	return r.failed > 0
}

// round is the result of a series of attempts.
type round struct {
	delivered, failed int
	// isDown reports whether the receiver accepts no message now.
	isDown bool
	isGone bool
	pause  time.Duration
	err    error
	at     time.Time
}

// result applies the result of an attempt.
func (s *Service) result(w *Webhook, m *Message, a *Attempt, r *round) {
	m.Attempts++
	m.Status, m.Error, m.AttemptedAt = a.status, "", s.deps.Now().UTC()
	if a.err == nil {
		m.State = Delivered
		r.delivered, r.at = r.delivered+1, m.AttemptedAt
		s.meter.attempt(w, outcomeDelivered)
		return
	}
	m.Error, r.err = a.err.Error(), a.err
	r.pause = max(r.pause, a.retryAfter)
	switch {
	case a.isRejection() && m.Attempts >= maxRejections:
		m.State = FailedMessage
		s.meter.attempt(w, outcomeDropped)
		s.deps.Log.Warn("event for a webhook dropped: the receiver rejects it", "webhook_id", w.ID, "webhook", w.Name, "event_id", m.ID, "err", a.err)
		return
	case !a.isRejection():
		r.isDown = true
		r.isGone = r.isGone || a.isGone()
	}
	r.failed++
	s.meter.attempt(w, outcomeFailed)
}

// conclude applies the result of a series of attempts to the webhook.
func (s *Service) conclude(w *Webhook, r *round) {
	now := s.deps.Now().UTC()
	if r.delivered > 0 {
		w.DeliveredAt, w.Failures, w.FailingSince, w.Error = r.at, 0, time.Time{}, ""
	}
	if r.failed == 0 {
		w.DueAt = now
		return
	}
	if w.FailingSince.IsZero() {
		w.FailingSince = now
	}
	w.Failures++
	w.Error = r.err.Error()
	w.DueAt = now.Add(max(r.pause, backOff(s.cfg.FirstPause, w.Failures)))
	switch {
	case r.isGone:
		w.State, w.Reason = Disabled, "the receiver answered 410 Gone"
	case now.Sub(w.FailingSince) > disableAfter:
		w.State, w.Reason = Disabled, fmt.Sprintf("no delivery has succeeded since %s: %s", w.FailingSince.UTC().Format(time.RFC3339), w.Error)
	case w.Waiting > MaxWaiting:
		w.State, w.Reason = Disabled, fmt.Sprintf("more than %d events wait: %s", MaxWaiting, w.Error)
	}
	if w.State == Disabled {
		s.deps.Log.Error("webhook disabled", "webhook_id", w.ID, "webhook", w.Name, "reason", w.Reason)
		return
	}
	s.deps.Log.Warn("webhook is failing", "webhook_id", w.ID, "webhook", w.Name, "failures", w.Failures, "next", w.DueAt, "err", r.err)
}

// backOff returns the pause after a number of failures, between half and all of the full pause.
func backOff(first time.Duration, failures int) time.Duration {
	full := min(first<<min(max(failures, 1)-1, 20), maxPause)
	return full/2 + rand.N(full/2+1)
}
