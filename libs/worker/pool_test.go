package worker

import (
	"context"
	"testing"
	"time"
)

// A command that is returned without need would be redelivered, and executed only after a question.
func TestSlot_FreeAfterTimeout_IsTaken(t *testing.T) {
	t.Parallel()
	p := &pool{slots: make(chan struct{}, 1)}
	over := make(chan time.Time)
	close(over)
	for range 100 { // select picks randomly, so an error shows in half of the runs
		if !p.slot(t.Context(), over) {
			t.Fatal("the free slot is not taken")
		}
		if p.slot(t.Context(), over) {
			t.Fatal("two slots are taken, but there is only one")
		}
		<-p.slots
	}
	p.slots <- struct{}{}
	ended, end := context.WithCancel(t.Context())
	end()
	if p.slot(ended, nil) {
		t.Error("a slot is taken, but there is none")
	}
}
