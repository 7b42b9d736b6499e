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

// TestMain lets the test binary run as the process that owns a server and is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(helperEnv); dir != "" {
		ownServerUntilKilled(dir)
		return
	}
	goleak.VerifyTestMain(tests{m})
}

// tests removes the shared data after all tests.
type tests struct{ m *testing.M }

func (t tests) Run() int {
	code := t.m.Run()
	if cluster.dir == "" {
		return code
	}
	if err := os.RemoveAll(cluster.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
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
