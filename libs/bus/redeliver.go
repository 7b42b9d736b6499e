package bus

import (
	"context"
	"fmt"

	"github.com/kyma-project/keb/libs/event"
)

// maxRedeliver limits the messages that Redeliver looks at, because an old unacknowledged message can precede any number of acknowledged ones.
const maxRedeliver = 10_000

// Redeliver makes the server deliver all unacknowledged messages of a consumer again now, instead of after AckWait. It is for messages that
// an ended process has received. It includes messages that other processes are handling, so their handlers must tolerate duplicates. It returns
// the number of unacknowledged messages. If they are too far apart, they wait for AckWait, and the number is 0.
func (b *Bus) Redeliver(ctx context.Context, spec event.ConsumerSpec) (int, error) {
	c, err := b.js.Consumer(ctx, string(spec.Stream), spec.Name)
	if err != nil {
		return 0, fmt.Errorf("redeliver: consumer %s of stream %s: %w", spec.Name, spec.Stream, err)
	}
	info := c.CachedInfo()
	first, last := info.AckFloor.Stream+1, info.Delivered.Stream
	if info.NumAckPending == 0 || last-first >= maxRedeliver {
		return 0, nil
	}
	for seq := first; seq <= last; seq++ {
		// The server ignores this for messages that are acknowledged. It does not read the last two numbers.
		subject := fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.0.0", spec.Stream, spec.Name, seq, info.Delivered.Consumer)
		if err := b.nc.Publish(subject, []byte("-NAK")); err != nil {
			return 0, fmt.Errorf("redeliver messages of stream %s: %w", spec.Stream, err)
		}
	}
	return info.NumAckPending, nil
}
