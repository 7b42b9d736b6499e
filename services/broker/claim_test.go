package broker_test

import (
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/event"
)

func TestClaim_WorkerWithoutCommand_IsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.orch.set(func() { b.orch.held = true })
	operation := b.accepted(b.put("i", ownOrder()))
	for _, name := range []string{event.CredentialsServiceManager, event.CredentialsKubeconfig} {
		if _, err := b.claimAs("avs", "i", operation, name); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: another worker gets %v", name, err)
		}
		if a, err := b.claim("i", operation, name); err != nil || !strings.Contains(string(a.Credentials), canary) && name == event.CredentialsServiceManager {
			t.Errorf("%s: the worker that has the command gets %v", name, err)
		}
	}
	b.orch.stop()
	if _, err := b.claim("i", operation, event.CredentialsServiceManager); err == nil || !strings.Contains(err.Error(), "ask again") {
		t.Errorf("without an orchestrator: %v", err)
	}
}

func TestClaim_ManyRefused_LogsFew(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	const claims, logged = 100, 20
	for range claims {
		if _, err := b.claimAs("avs", "i", "no-operation", event.CredentialsServiceManager); err == nil {
			t.Fatal("a claim for no operation is answered")
		}
	}
	// The broker may log one more after the interval.
	if n := strings.Count(b.log.String(), "claim refused"); n < logged || n > claims/2 {
		t.Errorf("the log has %d lines about %d claims, want %d", n, claims, logged)
	}
	long := strings.Repeat("LONG", 1000)
	for field, ask := range map[string][3]string{
		"instanceId": {long, "o", "n"}, "operationId": {"i", long, "n"}, "name": {"i", "o", long},
	} {
		_, err := b.claimAs("avs", ask[0], ask[1], ask[2])
		if err == nil || !strings.Contains(err.Error(), field+": is longer than 512 bytes") {
			t.Errorf("%s of %d bytes: %v", field, len(long), err)
		}
	}
	if strings.Contains(b.log.String(), "LONGLONG") {
		t.Error("what is too long is in the log")
	}
}
