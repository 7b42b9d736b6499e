package api

import (
	"context"
	"time"

	"github.com/kyma-project/keb/libs/service"
)

// usualEvery is the interval at which RunUsual reads the durations of ended operations.
const usualEvery = 10 * time.Minute

// RunUsual reads how long operations usually take, at once and then regularly, until ctx ends.
func (b *Broker) RunUsual(ctx context.Context) error {
	if err := b.readUsual(ctx); err != nil && ctx.Err() == nil {
		b.deps.Log.Warn("usual durations not read, trying again", "err", err)
	}
	return service.Every(ctx, usualEvery, b.deps.Log, "usual durations", b.readUsual)
}

func (b *Broker) readUsual(ctx context.Context) error {
	usual, err := b.deps.Store.Usual(ctx)
	if err == nil {
		b.usual.Store(&usual)
	}
	return err
}
