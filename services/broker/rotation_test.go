package broker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/broker"
)

// sealedWith counts the values that a key has sealed: credentials, new credentials of updates, and bindings.
func (b *bench) sealedWith(key string) [3]int {
	b.t.Helper()
	like := "%v1." + key + ".%"
	return [3]int{
		b.count(`SELECT count(*) FROM broker.credentials WHERE sealed LIKE $1`, like),
		b.count(`SELECT count(*) FROM broker.updates WHERE credentials::text LIKE $1`, like),
		b.count(`SELECT count(*) FROM broker.bindings WHERE sealed LIKE $1`, like),
	}
}

// stale returns the gauge of secrets that could not be sealed anew, or -1 before it exists.
func (b *bench) stale() float64 {
	b.t.Helper()
	families, err := b.registry.Gather()
	require.NoError(b.t, err)
	for _, family := range families {
		if family.GetName() == "keb_broker_secrets_stale" {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

func TestKeyRotation_EveryReplica_KeepsSecrets(t *testing.T) {
	t.Parallel()
	b, _ := newBindingBench(t, func(c *broker.Config) { c.ResealEvery = 20 * time.Millisecond })
	const second = "CANARY-second"
	made := b.bind("i", "b", nil)
	b.expect("bind", made, 201)
	b.hold(true)
	operation := b.accepted(b.patch("i", smContext(second)))
	if got := b.sealedWith("k1"); got != [3]int{1, 1, 1} {
		t.Fatalf("k1 has sealed %v, want one of each", got)
	}

	first := b.cfg.SealKeys
	fresh := "k2:" + seal.NewKey()
	b.cfg.SealKeys = first + "," + fresh // every replica can open values of the new key
	b.restart()
	b.cfg.SealKeys = fresh + "," + first // the new key seals values
	b.restart()
	testkit.Eventually(t, waitTimeout, "everything to be sealed with the new key", func() bool {
		return b.sealedWith("k2") == [3]int{1, 1, 1} && b.sealedWith("k1") == [3]int{}
	})
	testkit.Eventually(t, waitTimeout, "the gauge to say so", func() bool { return b.stale() == 0 })

	b.cfg.SealKeys = fresh // the old key is removed
	b.restart()
	if got := kubeconfigOf(b.binding("i", "b")); got == "" || got != kubeconfigOf(made) {
		t.Error("the kubeconfig of the binding is lost or another")
	}
	claimed, err := b.claim("i", operation, event.CredentialsServiceManager)
	if err != nil || !strings.Contains(string(claimed.Credentials), second) {
		t.Errorf("claimed %s, %v", claimed.Credentials, err)
	}
	b.hold(false)
	b.ended("i", operation, "succeeded")
	if strings.Contains(b.log.String(), "CANARY") {
		t.Error("a secret is in the log")
	}
}

func TestReseal_KeyRemovedTooEarly_LogsAndKeeps(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.ResealEvery = 20 * time.Millisecond })
	b.provisioned("i")
	b.provisioned("j")
	before := b.cfg.SealKeys
	b.cfg.SealKeys = "k2:" + seal.NewKey() // the old key is removed too early
	b.restart()
	testkit.Eventually(t, waitTimeout, "the gauge to count them", func() bool { return b.stale() == 2 })
	// The log names the missing key and the first affected instance, without a line for each of thousands of values.
	round, summary, _ := strings.Cut(b.log.String(), `level=ERROR msg="secrets cannot be sealed anew`)
	if n := strings.Count(round, "secret not sealed anew"); n != 1 || !strings.Contains(round, `key id \"k1\"`) ||
		!strings.Contains(round, "instance_id=i name="+event.CredentialsServiceManager) {
		t.Errorf("a round logs %d secrets:\n%s", n, round)
	}
	if summary, _, _ = strings.Cut(summary, "\n"); !strings.Contains(summary, "not_sealed=2") {
		t.Errorf("a round sums up: %s", summary)
	}
	b.cfg.SealKeys = b.cfg.SealKeys + "," + before
	b.restart()
	testkit.Eventually(t, waitTimeout, "the old key to help", func() bool { return b.stale() == 0 && b.sealedWith("k2")[0] == 2 })
}
