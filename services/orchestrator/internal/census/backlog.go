package census

import (
	"context"
	"fmt"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

// askTimeout bounds a request to the bus.
const askTimeout = 2 * time.Second

// Depth is the number of commands that wait for a worker.
type Depth struct {
	// Pending commands are not delivered yet; Unanswered ones are delivered but not acknowledged.
	Pending, Unanswered int64
}

// depths is an answer of the bus. It includes an error, so that callers share the error of an unavailable bus instead of asking again.
type depths struct {
	byWorker map[string]Depth
	err      error
}

// Depths returns the numbers of commands that wait on the bus, by worker. They may be some seconds old (see Value). The map must not be
// modified.
func (c *Census) Depths(ctx context.Context) (map[string]Depth, error) {
	d, err := c.depths.Get(ctx)
	if err != nil {
		return nil, err
	}
	return d.byWorker, d.err
}

func (c *Census) readDepths(ctx context.Context) (depths, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	byWorker, err := c.consumers(ctx)
	if err != nil {
		err = fmt.Errorf("read the commands that wait: %w", err)
	}
	return depths{byWorker, err}, nil
}

func (c *Census) consumers(ctx context.Context) (map[string]Depth, error) {
	stream, err := c.deps.JetStream.Stream(ctx, string(event.StreamCommands))
	if err != nil {
		return nil, err
	}
	byWorker := map[string]Depth{}
	list := stream.ListConsumers(ctx)
	for info := range list.Info() {
		byWorker[info.Name] = Depth{Pending: int64(info.NumPending), Unanswered: int64(info.NumAckPending)}
	}
	return byWorker, list.Err()
}
