package testkit

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"
)

// Logger writes to the test's log, every level. What is logged after the test has ended is dropped.
func Logger(t testing.TB) *slog.Logger {
	t.Helper()
	w := &testWriter{t: t}
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.t = nil
	})
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type testWriter struct {
	mu sync.Mutex
	t  testing.TB
}

func (w *testWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.t != nil {
		w.t.Log(string(bytes.TrimRight(p, "\n")))
	}
	return len(p), nil
}
