package dispatch

import (
	"testing"

	"github.com/kyma-project/keb/libs/event"
)

func TestResults_OperationEndsInBatch_StartsTheWaitingOne(t *testing.T) {
	b := setup(t)
	o := b.orchestrator()
	first, next := b.request(o, "i-1")[0], b.request(o, "i-1")[0]
	old := b.row(first).Cursor
	b.answer(first, old, nil)
	b.deliver(o, 1)
	// The batch has a duplicate of the first result and the last result.
	b.answer(first, old, nil)
	b.answer(first, b.row(first).Cursor, nil)
	b.deliver(o, 2)
	if got := b.row(first).Status; got != event.Succeeded {
		t.Fatalf("the first operation is %s", got)
	}
	if got := b.row(next).Status; got != event.InProgress {
		t.Errorf("the operation that waited for the instance is %s, want in progress without a sweep", got)
	}
}
