package bus

import "github.com/nats-io/nats.go/jetstream"

// SetRank gives a place among those who share a ranked consumer; chance gives it otherwise.
func (b *Bus) SetRank(n uint8) { b.rank = jetstream.PullPrioritized(n) }
