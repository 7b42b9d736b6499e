package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/orchestrator/internal/rounds"
)

const (
	// idle is the longest time between two checks for events. It covers a webhook whose orchestrator was killed.
	idle = 5 * time.Second
	// parallel is the number of webhooks that one orchestrator sends to in parallel, and lanes the number of messages to each of them.
	parallel = 2
	lanes    = 8
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
	// Kept is how long sent events are kept.
	Kept = 3 * 24 * time.Hour
	// skew is the tolerated difference of the orchestrators' clocks.
	skew        = time.Minute
	forgetEvery = 10 * time.Minute
	// announceEvery is the interval of checks for changed orchestrations.
	announceEvery = 2 * time.Second
	storeTimeout  = 10 * time.Second
)

// ErrNoKeys means that webhooks are off, because there are no keys that seal their secrets.
var ErrNoKeys = errors.New("webhooks are off: set KEB_WEBHOOK_KEYS")

// Message is an event for a webhook.
type Message struct {
	// Number orders the messages of a webhook. The store sets it.
	Number    int64
	WebhookID string
	// ID identifies the message in all attempts.
	ID      string
	Subject string
	Kind    Kind
	// Event is the CloudEvent as JSON.
	Event     string
	CreatedAt time.Time
	State     MessageState
	Attempts  int
	// Status and Error are those of the last attempt.
	Status      int
	Error       string
	AttemptedAt time.Time
}

// MessageState is the state of a message.
type MessageState string

// The states. A failed message is not sent again.
const (
	Waiting       MessageState = "waiting"
	Delivered     MessageState = "delivered"
	FailedMessage MessageState = "failed"
)

// MessageStates returns all states.
func MessageStates() []MessageState { return []MessageState{Waiting, Delivered, FailedMessage} }

// Store stores webhooks and their messages.
type Store interface {
	rounds.Store
	// Webhooks returns all webhooks, and Webhook one.
	Webhooks(ctx context.Context) ([]Webhook, error)
	Webhook(ctx context.Context, id string) (*Webhook, error)
	Add(ctx context.Context, w *Webhook) error
	Drop(ctx context.Context, id string) error
	// Update stores what changes, without the target.
	Update(ctx context.Context, w *Webhook) error
	Reseal(ctx context.Context, id, sealed string) error
	// About returns the known ones of some operations.
	About(ctx context.Context, operationIDs []string) (map[string]About, error)
	// Queue stores new messages, and returns their number. It ignores a known message.
	Queue(ctx context.Context, messages []Message) (int, error)
	// Next returns the next waiting messages, in order.
	Next(ctx context.Context, id string, limit int) ([]Message, error)
	// Record stores the results of attempts, and the webhook.
	Record(ctx context.Context, w *Webhook, messages []Message) error
	// Announce passes orchestrations with a new state to f, and stores the messages that it returns.
	Announce(ctx context.Context, f func([]Change) ([]Message, error)) (int, error)
	// Forget deletes some messages that are not waiting and are older than a time, and returns their number.
	Forget(ctx context.Context, before time.Time) (int64, error)
}

// Sealer seals the targets.
type Sealer interface {
	Seal(plain, associated []byte) (string, error)
	Open(sealed string, associated []byte) ([]byte, error)
	Stale(sealed string) bool
}

// Consumer consumes the facts for webhooks.
type Consumer interface {
	// Follow sets the subjects of the facts that Consume gets from now on; none ends it.
	Follow(ctx context.Context, subjects []string, since time.Time) error
	// Consume passes facts to handle until ctx ends.
	Consume(ctx context.Context, subjects []string, since time.Time, handle func(context.Context, []Delivery)) error
}

// Delivery is a fact from the bus.
type Delivery interface {
	Message() (e cloudevents.Event, subject string)
	Ack() error
	Nak(after time.Duration) error
}

// Config contains the settings of a Service.
type Config struct {
	// PublicURL is the address of the console in links; empty for no links.
	PublicURL string
	// AllowLocal allows http, and loopback addresses.
	AllowLocal bool
	// Every is the pause after an error of the store.
	Every time.Duration
	// FirstPause is the pause after the first failed attempt, for tests; zero means one second.
	FirstPause time.Duration
}

// Deps are what a Service needs.
type Deps struct {
	Store    Store
	Consumer Consumer
	// Keys seal the targets. Nil turns webhooks off.
	Keys       Sealer
	Registerer prometheus.Registerer
	Now        func() time.Time
	Log        *slog.Logger
}

// Service manages webhooks and sends to them. Any number of orchestrators may run one.
type Service struct {
	*rounds.Rounds

	cfg    Config
	deps   Deps
	sender *Sender
	meter  *meter
	// changed is signalled when webhooks have changed.
	changed chan struct{}
}

// New returns a Service. Run starts it.
func New(cfg Config, deps Deps) (*Service, error) {
	if cfg.FirstPause == 0 {
		cfg.FirstPause = firstPause
	}
	s := &Service{cfg: cfg, deps: deps, sender: NewSender(cfg.AllowLocal, deps.Now), changed: make(chan struct{}, 1)}
	var err error
	if s.meter, err = newMeter(deps.Registerer); err != nil {
		return nil, err
	}
	s.Rounds = rounds.New(rounds.Config{
		What: "webhook", Every: cfg.Every, Idle: idle, Parallel: parallel, Timeout: storeTimeout, RoundTimeout: roundFor + 2*sendTimeout + storeTimeout,
	}, deps.Store, s.round, deps.Now, deps.Log)
	return s, nil
}

// Run works until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	defer s.sender.Close()
	if s.deps.Keys == nil {
		<-ctx.Done()
		return nil
	}
	s.reseal(ctx)
	group := service.NewGroup(s.deps.Log)
	group.Add("deliveries", s.Rounds.Run)
	group.Add("facts", s.follow)
	group.Add("orchestrations", func(ctx context.Context) error {
		return service.Every(ctx, announceEvery, s.deps.Log, "events of orchestrations", s.announce)
	})
	group.Add("old deliveries", func(ctx context.Context) error {
		return service.Every(ctx, forgetEvery, s.deps.Log, "remove old deliveries", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			for {
				if n, err := s.deps.Store.Forget(ctx, s.deps.Now().Add(-Kept)); err != nil || n == 0 {
					return err
				}
			}
		})
	})
	return group.Run(ctx)
}

// reseal seals the targets with the first key, so that an old key can be removed.
func (s *Service) reseal(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	webhooks, err := s.deps.Store.Webhooks(ctx)
	for i := range webhooks {
		w := &webhooks[i]
		if !s.deps.Keys.Stale(w.Sealed) {
			continue
		}
		plain, problem := s.deps.Keys.Open(w.Sealed, associated(w.ID))
		if problem == nil {
			var sealed string
			if sealed, problem = s.deps.Keys.Seal(plain, associated(w.ID)); problem == nil {
				problem = s.deps.Store.Reseal(ctx, w.ID, sealed)
			}
		}
		err = errors.Join(err, problem)
	}
	if err != nil && ctx.Err() == nil {
		s.deps.Log.Warn("secrets of webhooks not sealed anew; the next start tries again", "err", err)
	}
}

// Create stores a webhook with its target, which must be valid.
func (s *Service) Create(ctx context.Context, w *Webhook, t *Target) error {
	if s.deps.Keys == nil {
		return ErrNoKeys
	}
	plain, err := json.Marshal(t) //nolint:gosec // it is sealed below
	if err != nil {
		return fmt.Errorf("encode the target: %w", err)
	}
	now := s.deps.Now().UTC()
	w.ID, w.Origin, w.State, w.CreatedAt, w.DueAt = uuid.Must(uuid.NewV7()).String(), origin(t.URL), Active, now, now
	if w.Sealed, err = s.deps.Keys.Seal(plain, associated(w.ID)); err != nil {
		return fmt.Errorf("seal the target: %w", err)
	}
	if err := s.deps.Store.Add(ctx, w); err != nil {
		return err
	}
	s.refresh(ctx)
	return nil
}

// Drop deletes a webhook with its messages.
func (s *Service) Drop(ctx context.Context, id string) error {
	if err := s.deps.Store.Drop(ctx, id); err != nil {
		return err
	}
	s.refresh(ctx)
	return nil
}

// SetState enables or disables a webhook. The messages of a disabled webhook wait, and new events are not stored for it.
func (s *Service) SetState(ctx context.Context, id string, state State, reason string) (*Webhook, error) {
	w, err := s.deps.Store.Webhook(ctx, id)
	if err != nil {
		return nil, err
	}
	w.State, w.Reason = state, reason
	if state == Active {
		w.Failures, w.FailingSince, w.Error, w.DueAt = 0, time.Time{}, "", s.deps.Now().UTC()
	}
	if err := s.deps.Store.Update(ctx, w); err != nil {
		return nil, err
	}
	s.refresh(ctx)
	return w, nil
}

// Test sends a test delivery once, and stores its result.
func (s *Service) Test(ctx context.Context, id, by string) (*Message, error) {
	if s.deps.Keys == nil {
		return nil, ErrNoKeys
	}
	w, err := s.deps.Store.Webhook(ctx, id)
	if err != nil {
		return nil, err
	}
	target, err := s.open(w)
	if err != nil {
		return nil, err
	}
	now := s.deps.Now().UTC()
	key := "test/" + uuid.NewString()
	e, err := trial(key, w, by, now)
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode the event: %w", err)
	}
	m := Message{WebhookID: w.ID, ID: messageID(w.ID, key), Subject: w.ID, Kind: Test, Event: string(encoded), CreatedAt: now, State: FailedMessage}
	a := s.sender.Send(ctx, w.Format, target, m.ID, m.Event)
	m.Attempts, m.Status, m.AttemptedAt = 1, a.status, s.deps.Now().UTC()
	if a.err == nil {
		m.State = Delivered
	} else {
		m.Error = a.err.Error()
	}
	_, err = s.deps.Store.Queue(ctx, []Message{m})
	return &m, err
}

// refresh applies a change of the webhooks to the bus, and wakes the loops. A failure only delays the change.
func (s *Service) refresh(ctx context.Context) {
	if webhooks, err := s.deps.Store.Webhooks(ctx); err == nil {
		active := activeOf(webhooks)
		if err := s.deps.Consumer.Follow(ctx, subjects(active), since(active, s.deps.Now())); err != nil {
			s.deps.Log.Warn("facts for webhooks not followed yet", "err", err)
		}
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
	s.Wake()
}

func activeOf(webhooks []Webhook) []Webhook {
	return slices.DeleteFunc(slices.Clone(webhooks), func(w Webhook) bool { return w.State != Active })
}

// since returns the time from which a new consumer gets facts: the time of the oldest webhook, unless messages of that time may be
// forgotten, so that they would be sent again.
func since(active []Webhook, now time.Time) time.Time {
	first := now
	for i := range active {
		if at := active[i].CreatedAt; at.Before(first) {
			first = at
		}
	}
	if oldest := now.Add(-Kept + time.Hour); first.Before(oldest) {
		first = oldest
	}
	return first.Add(-skew)
}

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
		current, stop = wanted, func() {}
		if len(wanted) == 0 {
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
		settled := error(nil)
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
			if ok && !fact.OccurredAt.Before(hook.CreatedAt.Add(-skew)) {
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
				if _, ok := hook.Filter.selects([]Kind{Orchestration}, c.Type); !ok || c.OccurredAt.Before(hook.CreatedAt.Add(-skew)) {
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

func (s *Service) open(w *Webhook) (*Target, error) {
	plain, err := s.deps.Keys.Open(w.Sealed, associated(w.ID))
	if err != nil {
		return nil, fmt.Errorf("the secret of webhook %s cannot be opened: %w", w.Name, err)
	}
	var t Target
	if err := json.Unmarshal(plain, &t); err != nil {
		return nil, fmt.Errorf("the secret of webhook %s cannot be read", w.Name)
	}
	return &t, nil
}

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
	if err != nil {
		return time.Time{}, err
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
func (s *Service) result(w *Webhook, m *Message, a *attempt, r *round) {
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
