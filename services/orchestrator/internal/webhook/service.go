package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/orchestrator/internal/replica"
)

const (
	// idle is the longest time between two checks for events. It covers a webhook whose orchestrator was killed.
	idle = 5 * time.Second
	// parallel is the number of webhooks that one orchestrator sends to in parallel.
	parallel = 2
	// Kept is how long sent events are kept.
	Kept        = 3 * 24 * time.Hour
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
	replica.Orders
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
	*replica.Rounds

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
	s.Rounds = replica.NewRounds(replica.RoundsConfig{
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
	w.ID, w.Origin, w.State, w.CreatedAt, w.ActiveSince, w.DueAt = uuid.Must(uuid.NewV7()).String(), origin(t.URL), Active, now, now, now
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

// SetState enables or disables a webhook. The messages of a disabled webhook wait, and the events of that time are not stored for it.
func (s *Service) SetState(ctx context.Context, id string, state State, reason string) (*Webhook, error) {
	w, err := s.deps.Store.Webhook(ctx, id)
	if err != nil {
		return nil, err
	}
	now := s.deps.Now().UTC()
	if state == Active && w.State != Active {
		w.ActiveSince = now
	}
	w.State, w.Reason = state, reason
	if state == Active {
		w.Failures, w.FailingSince, w.Error, w.DueAt = 0, time.Time{}, "", now
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
		s.meter.attempt(w, outcomeDelivered)
	} else {
		m.Error = a.err.Error()
		s.meter.attempt(w, outcomeFailed)
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
