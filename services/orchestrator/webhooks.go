package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/services/orchestrator/internal/store"
	"github.com/kyma-project/keb/services/orchestrator/internal/webhook"
)

// webhookKeys returns nil if webhooks are off.
func (c Config) webhookKeys() (*seal.Keyring, error) {
	if c.WebhookKeys == "" {
		return nil, nil
	}
	keys, err := seal.ParseKeyring(c.WebhookKeys)
	if err != nil {
		return nil, fmt.Errorf("KEB_WEBHOOK_KEYS: %w", err)
	}
	return keys, nil
}

func (o *Orchestrator) openWebhooks(write, read *sqlx.DB) error {
	keys, err := o.cfg.webhookKeys()
	if err != nil {
		return err
	}
	deps := webhook.Deps{
		Store: store.NewWebhooks(write, read), Consumer: webhookFacts{bus: o.deps.Bus, rank: func() int { return o.rank }}, Registerer: o.deps.Registerer, Now: o.deps.Now, Log: o.deps.Log,
	}
	if keys != nil {
		deps.Keys = keys
	}
	o.webhooks, err = webhook.New(webhook.Config{
		PublicURL: o.cfg.PublicURL, AllowLocal: o.cfg.LocalWebhooks, Every: o.cfg.OrchestrationsEvery,
		FirstPause: o.cfg.WebhookPause,
	}, deps)
	return err
}

// webhookFacts consumes the facts for webhooks.
type webhookFacts struct {
	bus  *bus.Bus
	rank func() int
}

// Follow implements webhook.Consumer.
func (f webhookFacts) Follow(ctx context.Context, subjects []string, since time.Time) error {
	spec := event.WebhooksConsumer(subjects, since)
	if len(subjects) > 0 {
		return f.bus.EnsureConsumer(ctx, spec)
	}
	err := f.bus.JetStream().DeleteConsumer(ctx, string(spec.Stream), spec.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}

// Consume implements webhook.Consumer.
func (f webhookFacts) Consume(ctx context.Context, subjects []string, since time.Time, handle func(context.Context, []webhook.Delivery)) error {
	cfg := bus.ConsumeConfig{Consumer: event.WebhooksConsumer(subjects, since), MaxBatch: maxBatch, Handlers: 1, Rank: f.rank()}
	return f.bus.Consume(ctx, cfg, func(ctx context.Context, batch []*bus.Delivery) {
		deliveries := make([]webhook.Delivery, len(batch))
		for i, d := range batch {
			deliveries[i] = d
		}
		handle(ctx, deliveries)
	})
}
