package contract

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

func TestAWorkerThatMissesAQuestionIsAskedAgain(t *testing.T) {
	t.Parallel()
	cfg := Config{Worker: "late"}.withDefaults()
	r, err := newRig(t.Context(), cfg)
	require.NoError(t, err)
	defer r.close()
	k := &kit{cfg: cfg, rig: r, pulse: r.pulse, wire: r.wire}
	var asked atomic.Int32
	if _, err := r.bus.NATS().Subscribe("$SRV.PING.late", func(m *nats.Msg) {
		if asked.Add(1) == 2 {
			_ = m.Respond([]byte("here"))
		}
	}); err != nil {
		t.Fatal(err)
	}
	first := func(*nats.Msg) bool { return true }
	began := time.Now()
	if m := k.service(t.Context(), time.Minute, "$SRV.PING.late", first); m == nil || string(m.Data) != "here" || asked.Load() < 2 {
		t.Errorf("the answer is %v after %d questions: want the one to the second", m, asked.Load())
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s: want the first answer to end it", took)
	}
	if m := k.service(t.Context(), answerPatience, "$SRV.PING.nobody", first); m != nil {
		t.Errorf("the answer is %s: want none", m.Data)
	}
}
