package service

import (
	"context"
	"fmt"
	"log/slog"
	"os"
)

// kept is a secret in a helper's memory, an argument on the stack.
const kept = "CANARY-in-memory-5Q2Z7K4M"

// Kinds of helpers.
const (
	kindHolds  = "holds"  // keeps a secret
	kindPanics = "panics" // keeps a secret, and panics on a signal
	kindDumps  = "dumps"  // does not call NoDumps
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
