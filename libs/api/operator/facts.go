package operator

import (
	"context"
	"net/http"
	"time"
)

// Replay requests that facts are published again.
type Replay struct {
	// Since selects the facts that occurred at this time or later.
	Since time.Time `json:"since"`
	// Next is the value of the previous answer; empty in the first request.
	Next string `json:"next,omitempty" jsonschema:"format=uuid"`
}

// ReplayAnswer is the result of one replay request.
type ReplayAnswer struct {
	// Published is the number of facts that this request published.
	Published int `json:"published"`
	// Next is the position for the next request; empty when there are no more facts.
	Next string `json:"next,omitempty" jsonschema:"format=uuid"`
}

// ReplayFacts publishes facts again for a few seconds. The answer contains the position for the next request.
func (c *Client) ReplayFacts(ctx context.Context, r Replay) (ReplayAnswer, error) {
	out, _, err := write[ReplayAnswer](ctx, c, http.MethodPost, "/facts/replay", r, "publish facts again")
	if err != nil {
		return ReplayAnswer{}, err
	}
	return *out, nil
}
