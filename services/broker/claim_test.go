package broker_test

import (
	"strings"
	"testing"

	"github.com/kyma-project/keb/libs/event"
)

func TestAWorkerWithoutACommandOfTheOperationClaimsNothing(t *testing.T) {
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
