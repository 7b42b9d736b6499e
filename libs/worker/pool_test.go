package worker

import (
	"context"
	"testing"
	"time"
)

// A command that is given back without need comes again, and is executed only after a question.
func TestAFreeSlotIsTakenThoughTheTimeIsOver(t *testing.T) {
	t.Parallel()
	p := &pool{slots: make(chan struct{}, 1)}
	over := make(chan time.Time)
	close(over)
	for range 100 { // a choice between two that can both be made is wrong half of the time
		if !p.slot(t.Context(), over) {
			t.Fatal("no slot is taken, and one is free")
		}
		if p.slot(t.Context(), over) {
			t.Fatal("two slots are taken, and there is one")
		}
		<-p.slots
	}
	p.slots <- struct{}{}
	ended, end := context.WithCancel(t.Context())
	end()
	if p.slot(ended, nil) {
		t.Error("a slot is taken that is not there")
	}
}
