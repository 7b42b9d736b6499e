package liveness_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/orchestrator/internal/liveness"
)

func TestProgress_Reports_AreKeptByWorkerAndCommand(t *testing.T) {
	nc, err := nats.Connect(testkit.NATS(t).URL())
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	clock := testkit.NewClock(time.Date(2026, 11, 24, 8, 0, 0, 0, time.UTC))
	changed := make(chan string, 10)
	p := liveness.NewProgress(nc, func(ids ...string) { changed <- strings.Join(ids, ",") }, clock.Now, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-ended)
	}()
	// Run has subscribed when the first report is heard.
	testkit.Eventually(t, timeout, "a report is heard", func() bool {
		require.NoError(t, nc.Publish(event.ProgressSubject("first"), []byte(`{"operationId":"op-0","cursor":1,"message":"x"}`)))
		select {
		case <-changed:
			return true
		case <-time.After(50 * time.Millisecond):
			return false
		}
	})
	for _, report := range []struct{ worker, body string }{
		{"alpha", `{"operationId":"op-1","cursor":7,"message":"1 of 7 nodes"}`},
		{"alpha", `{"operationId":"op-1","cursor":7,"message":"3 of 7 nodes, password=hunter2","percent":43}`},
		{"beta", `{"operationId":"op-1","cursor":7,"message":"forged by another worker"}`},
		{"alpha", `{"operationId":"op-1","cursor":0,"message":"no cursor"}`},
		{"alpha", `{"operationId":"op-1","cursor":7,"message":"` + strings.Repeat("x", event.MaxProgress+1) + `"}`},
		{"alpha", `{"operationId":"op-1","cursor":7,"message":"x","percent":101}`},
		{"alpha", `no JSON`},
		{"alpha", `{"operationId":"op-2","cursor":1,"message":"the last"}`},
	} {
		require.NoError(t, nc.Publish(event.ProgressSubject(report.worker), []byte(report.body)))
	}
	for id := ""; id != "op-2"; {
		id = <-changed
	}
	got, ok := p.Of("alpha", event.CommandRef{OperationID: "op-1", Cursor: 7})
	want := liveness.Report{Cursor: 7, Message: "3 of 7 nodes, password=[redacted]", Percent: new(43), At: clock.Now()}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("found %t, report (-want +got):\n%s", ok, diff)
	}
	for name, command := range map[string]event.CommandRef{"alpha": {OperationID: "op-1", Cursor: 8}, "gamma": {OperationID: "op-1", Cursor: 7}} {
		if r, ok := p.Of(name, command); ok {
			t.Errorf("%s, cursor %d: %+v, want no report", name, command.Cursor, r)
		}
	}
}
