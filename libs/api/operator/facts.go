package operator

import (
	"context"
	"encoding/json"
	"fmt"
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
	var out ReplayAnswer
	body, err := json.Marshal(r)
	if err != nil {
		return out, err
	}
	if _, err := c.send(ctx, http.MethodPost, "/facts/replay", "application/json", body, &out); err != nil {
		return out, fmt.Errorf("publish facts again: %w", err)
	}
	return out, nil
}
