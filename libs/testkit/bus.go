package testkit

import (
	"context"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/bus"
)

const callLimit = time.Minute

// Bus connects to the server at url and creates the contract's streams. The connection is closed when the test ends.
func Bus(t testing.TB, url string) *bus.Bus {
	t.Helper()
	b := Connect(t, url)
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	if err := b.EnsureStreams(ctx); err != nil {
		t.Fatalf("make the streams: %v", err)
	}
	return b
}

// Connect is like Bus, but creates no streams.
func Connect(t testing.TB, url string) *bus.Bus {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	b, err := bus.Connect(ctx, bus.Config{URL: url, Name: "keb-test"}, bus.Deps{Log: Logger(t)})
	if err != nil {
		t.Fatalf("connect to the bus: %v", err)
	}
	t.Cleanup(b.Close)
	return b
}
