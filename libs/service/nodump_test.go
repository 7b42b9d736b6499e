package service

import (
	"context"
	"fmt"
	"log/slog"
	"os"
)

// kept is what a helper has in memory, argument of a function on its stack.
const kept = "CANARY-in-memory-5Q2Z7K4M"

// Other kinds of helpers.
const (
	kindHolds  = "holds"  // keeps a secret
	kindPanics = "panics" // keeps a secret, and panics when it is told to stop
	kindDumps  = "dumps"  // is not kept from dumping
)

// hold keeps the secret alive and on the stack until ctx ends.
//
//go:noinline
func hold(ctx context.Context, secret string, panics bool) int {
	fmt.Println("ready")
	<-ctx.Done()
	fmt.Println("dumpable:", dumpable())
	if panics {
		panic("the service does not know what to do")
	}
	return len(secret)
}

func beOneThatEndsBadly(kind string) {
	if kind == kindDumps {
		hold(context.Background(), os.Getenv("KEB_TEST_SECRET"), false)
		return
	}
	Main("helper", func(ctx context.Context, _ *slog.Logger) error {
		hold(ctx, os.Getenv("KEB_TEST_SECRET"), kind == kindPanics)
		return nil
	})
}
