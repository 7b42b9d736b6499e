package broker_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/broker"
)

// running returns an operation of the instance whose command the claimant has.
func (b *bench) running(instanceID string) string {
	b.t.Helper()
	b.hold(true)
	operation := b.accepted(b.put(instanceID, order(azure)))
	b.requested(operation)
	return operation
}

func (b *bench) keep(worker, instanceID, operationID, value string) error {
	return b.ask(event.AskKeepAs(worker), event.KeepRequest{InstanceID: instanceID, OperationID: operationID, Value: json.RawMessage(value)}, &event.KeepAnswer{})
}

func (b *bench) kept(worker, instanceID, operationID string) (string, error) {
	var a event.KeptAnswer
	err := b.ask(event.AskKeptAs(worker), event.KeptRequest{InstanceID: instanceID, OperationID: operationID}, &a)
	return string(a.Value), err
}

const keptSecret = `{"secret":"CANARY-kept"}`

func TestKept_RunningOperation_SealsAndReplacesValue(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	operation := b.running("i")
	if got, err := b.kept(claimant, "i", operation); got != "" || err != nil {
		t.Errorf("before anything is kept: %q, %v", got, err)
	}
	for _, value := range []string{`{"first":1}`, keptSecret} {
		require.NoError(t, b.keep(claimant, "i", operation, value))
		if got, err := b.kept(claimant, "i", operation); got != value || err != nil {
			t.Errorf("kept is %q, %v, want %q", got, err, value)
		}
	}
	b.rows("sealed values", 1, `SELECT count(*) FROM broker.kept WHERE sealed LIKE 'v1.k1.%' AND worker = $1`, claimant)
	if strings.Contains(b.dump(), "CANARY-kept") || strings.Contains(b.log.String(), "CANARY-kept") {
		t.Error("the value is in the clear in the database or the log")
	}
}

func TestKept_WithoutTheCommand_IsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("other")
	operation := b.running("i")
	require.NoError(t, b.keep(claimant, "i", operation, keptSecret))
	refused := func(what, worker, instanceID, operationID, value string) {
		t.Helper()
		if err := b.keep(worker, instanceID, operationID, value); err == nil || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("keep, %s: %v", what, err)
		}
		if value == keptSecret {
			if got, err := b.kept(worker, instanceID, operationID); err == nil || got != "" {
				t.Errorf("kept, %s: %q, %v", what, got, err)
			}
		}
	}
	refused("another worker", "avs", "i", operation, keptSecret)
	refused("another instance", claimant, "other", operation, keptSecret)
	refused("unknown operation", claimant, "i", "unknown", keptSecret)
	refused("NUL", claimant, "i\x00", operation, keptSecret)
	refused("long id", claimant, strings.Repeat("i", osb.MaxIDLength+1), operation, keptSecret)
	refused("no ids", claimant, "", "", keptSecret)
	refused("too large", claimant, "i", operation, `"`+strings.Repeat("x", event.MaxKept)+`"`)
	if got, err := b.kept(claimant, "i", operation); got != keptSecret || err != nil {
		t.Errorf("kept is %q, %v", got, err)
	}
	b.hold(false)
	b.ended("i", operation, "succeeded")
	refused("operation that has ended", claimant, "i", operation, keptSecret)
}

func TestKept_KeyIsRotated_IsSealedAnew(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.ResealEvery = 20 * time.Millisecond })
	operation := b.running("i")
	require.NoError(t, b.keep(claimant, "i", operation, keptSecret))
	fresh := "k2:" + seal.NewKey()
	b.cfg.SealKeys = fresh + "," + b.cfg.SealKeys
	b.restart()
	testkit.Eventually(t, waitTimeout, "the value to be sealed with the new key", func() bool {
		return b.count(`SELECT count(*) FROM broker.kept WHERE sealed LIKE 'v1.k2.%'`) == 1 && b.stale() == 0
	})
	b.cfg.SealKeys = fresh
	b.restart()
	if got, err := b.kept(claimant, "i", operation); got != keptSecret || err != nil {
		t.Errorf("kept is %q, %v", got, err)
	}
}

func TestKept_InstanceIsRemoved_IsGone(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	operation := b.running("i")
	require.NoError(t, b.keep(claimant, "i", operation, keptSecret))
	b.hold(false)
	b.ended("i", operation, "succeeded")
	b.ended("i", b.accepted(b.delete("i")), "succeeded")
	b.rows("values are left", 0, `SELECT count(*) FROM broker.kept`)
}

// A value that is moved to the row of another instance does not open.
func TestKept_MovedToAnotherRow_DoesNotOpen(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	first, second := b.running("i"), b.running("j")
	for id, operation := range map[string]string{"i": first, "j": second} {
		require.NoError(t, b.keep(claimant, id, operation, keptSecret))
	}
	if _, err := b.db.Exec(`UPDATE broker.kept k SET sealed = o.sealed, revision = o.revision FROM broker.kept o
		WHERE k.instance_id = 'j' AND o.instance_id = 'i'`); err != nil {
		t.Fatal(err)
	}
	if got, err := b.kept(claimant, "j", second); err == nil || got != "" || !strings.HasSuffix(err.Error(), event.KeptBroken) {
		t.Errorf("kept is %q, %v", got, err)
	}
}
