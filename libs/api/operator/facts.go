package operator

import "time"

// Replay asks for facts to be published again.
type Replay struct {
	// Since is when the facts occurred that are wanted, or later.
	Since time.Time `json:"since"`
	// Next is that of the answer before; empty at first.
	Next string `json:"next,omitempty" jsonschema:"format=uuid"`
}

// ReplayAnswer says how many facts a request has published.
type ReplayAnswer struct {
	// Published is how many facts this request has published.
	Published int `json:"published"`
	// Next is where to go on; empty when there are no more facts.
	Next string `json:"next,omitempty" jsonschema:"format=uuid"`
}
