package operator

import "time"

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
