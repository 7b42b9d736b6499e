package stagemem

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"
)

// Wrap replaces the bucket at its next opening.
func (m *Memory) Wrap(wrap func(jetstream.KeyValue) jetstream.KeyValue) {
	open := m.open
	m.open = func(ctx context.Context, js jetstream.JetStream) (jetstream.KeyValue, error) {
		kv, err := open(ctx, js)
		return wrap(kv), err
	}
}

// Key returns the key of an entry in the bucket; an empty name means the marker of the scope.
func Key(s Scope, name string) (string, error) {
	if name == "" {
		prefix, err := s.prefix()
		return prefix + marker, err
	}
	prefix, token, err := names(s, name)
	return prefix + token, err
}

// Name returns the name that is encoded in a token of a key.
func Name(token string) (string, error) { return decode(token) }
