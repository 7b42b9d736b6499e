package replica

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/testkit"
)

// orders are active for ever.
type orders []string

func (o orders) Active(context.Context) ([]string, error) { return append([]string(nil), o...), nil }

func (orders) Exclusively(ctx context.Context, _ string, f func(context.Context) error) (bool, error) {
	return true, f(ctx)
}

func TestRounds_OthersAreAlwaysDue_NoneStarves(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var r *Rounds
	var count atomic.Int64
	var last atomic.Bool
	r = NewRounds(RoundsConfig{What: "test", Every: time.Hour, Idle: time.Hour, Parallel: 2, Timeout: time.Minute, RoundTimeout: time.Minute}, orders{"1", "2", "3"},
		func(_ context.Context, id string) (time.Time, error) {
			if id == "3" {
				last.Store(true)
				cancel()
			} else if count.Add(1) == 100 {
				cancel()
			}
			return time.Time{}, nil // due at once
		}, time.Now, testkit.Logger(t))
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if !last.Load() {
		t.Error("the third order had no round in 100 rounds of the others")
	}
}
