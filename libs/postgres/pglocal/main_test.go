package pglocal

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const (
	helperEnv  = "KEB_TEST_PGLOCAL_HELPER"
	startLimit = time.Minute
)

// TestMain lets the test binary play the process that owns a server and is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		ownServerUntilKilled(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func ownServerUntilKilled(dir string) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	s, err := Start(ctx, Config{DataDir: dir, Durable: true})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println("ready", s.PID(), s.URL("postgres"))
	<-s.Done()
}
