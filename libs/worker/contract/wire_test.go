package contract

import (
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func TestACommandIsAcknowledgedByAnyDeliverySinceItCameLast(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		given []*delivery
		sent  int
		want  bool
	}{
		"not delivered yet": {sent: 1},
		"delivered":         {given: []*delivery{{seq: 1, tick: 1}}, sent: 1},
		"acknowledged":      {given: []*delivery{{seq: 1, tick: 1, settled: ack, settle: 2}}, sent: 1, want: true},
		"declined":          {given: []*delivery{{seq: 1, tick: 1, settled: nak, settle: 2}}, sent: 1},
		"lost on the way":   {given: []*delivery{{seq: 1, tick: 1, settled: ack, settle: 2, lost: true}}, sent: 1},
		"lost, came again":  {given: []*delivery{{seq: 1, tick: 1, settled: ack, settle: 2, lost: true}, {seq: 1, tick: 3, settled: ack, settle: 4}}, sent: 1, want: true},
		"came again, the first is acknowledged after that": {
			given: []*delivery{{seq: 1, tick: 1, settled: ack, settle: 3}, {seq: 1, tick: 2}}, sent: 1, want: true,
		},
		"came again, the first was acknowledged before that": {
			given: []*delivery{{seq: 1, tick: 1, settled: ack, settle: 2}, {seq: 1, tick: 3}}, sent: 1,
		},
		"came again while the acknowledgement was on its way": {
			given: []*delivery{{seq: 1, tick: 1, settled: ack, settle: 2}, {seq: 1, tick: 3, stray: true}}, sent: 1, want: true,
		},
		"one of two messages": {
			given: []*delivery{{seq: 1, tick: 1, settled: ack, settle: 3}, {seq: 2, tick: 2}}, sent: 2,
		},
		"two messages": {
			given: []*delivery{{seq: 1, tick: 1, settled: ack, settle: 3}, {seq: 2, tick: 2, settled: ack, settle: 4}}, sent: 2, want: true,
		},
		"one of two messages, the other not delivered": {
			given: []*delivery{{seq: 1, tick: 1, settled: ack, settle: 3}}, sent: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := order{given: tc.given, sent: tc.sent}
			if got := o.acknowledged(); got != tc.want {
				t.Errorf("acknowledged %v, want %v", got, tc.want)
			}
		})
	}
}

func TestOnlyADeliveryAfterAnAcknowledgementHasCrossedIt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		given []*delivery
		want  int
	}{
		"delivered":                   {given: []*delivery{{seq: 1}}},
		"acknowledged":                {given: []*delivery{{seq: 1, settled: ack}}},
		"came again":                  {given: []*delivery{{seq: 1, settled: ack}, {seq: 1}}, want: 1},
		"came again and was settled":  {given: []*delivery{{seq: 1, settled: ack}, {seq: 1, settled: nak}}},
		"came again after a decline":  {given: []*delivery{{seq: 1, settled: nak}, {seq: 1}}},
		"the acknowledgement is lost": {given: []*delivery{{seq: 1, settled: ack, lost: true}, {seq: 1}}},
		"another message":             {given: []*delivery{{seq: 1, settled: ack}, {seq: 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			o := order{given: tc.given}
			if got := len(o.crossed()); got != tc.want {
				t.Errorf("%d deliveries have crossed it, want %d", got, tc.want)
			}
		})
	}
}

func TestAnAnswerToEitherDeliveryOfAMessageEndsThatItIsHeld(t *testing.T) {
	t.Parallel()
	type step struct {
		kind         string // of the answer; empty for a delivery
		seq, counted int
	}
	for name, tc := range map[string]struct {
		steps    []step
		loseAcks bool
		want     int
	}{
		"delivered":                      {steps: []step{{"", 1, 1}}, want: 1},
		"acknowledged":                   {steps: []step{{"", 1, 1}, {ack, 1, 1}}},
		"still worked at":                {steps: []step{{"", 1, 1}, {inProgress, 1, 1}}, want: 1},
		"came again":                     {steps: []step{{"", 1, 1}, {"", 1, 2}, {ack, 1, 1}}},
		"came again and was given back":  {steps: []step{{"", 1, 1}, {"", 1, 2}, {nak, 1, 1}}},
		"came again, the later answered": {steps: []step{{"", 1, 1}, {"", 1, 2}, {ack, 1, 2}}},
		"came after it was given back":   {steps: []step{{"", 1, 1}, {nak, 1, 1}, {"", 1, 2}}, want: 1},
		"came again, the answer is lost": {steps: []step{{"", 1, 1}, {"", 1, 2}, {ack, 1, 1}}, loseAcks: true, want: 1},
		"another message":                {steps: []step{{"", 1, 1}, {"", 2, 1}, {ack, 1, 1}}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPulse()
			defer p.close()
			w := newWire("hello", p)
			w.loseAcks = tc.loseAcks
			for _, s := range tc.steps {
				of := w.acks + strconv.Itoa(s.counted) + "." + strconv.Itoa(s.seq) + ".9.1700000000000000000.0"
				if s.kind == "" {
					w.see(false, &frame{op: "HMSG", subject: "keb.command.hello.Say", reply: of, header: nats.Header{}})
				} else {
					w.see(true, &frame{op: "PUB", subject: of, data: []byte(s.kind)})
				}
			}
			if n := len(w.held); n != tc.want {
				t.Errorf("%d commands held, want %d", n, tc.want)
			}
		})
	}
}

func TestNobodyIsToBlameForWhatComesAgainWhileThisProcessStandsStill(t *testing.T) {
	t.Parallel()
	const wait = 10 * time.Second
	for name, tc := range map[string]struct {
		runs, stands time.Duration
		want         bool
	}{
		"the worker is silent":             {runs: wait, want: true},
		"the process stands still":         {runs: wait / 3, stands: wait},
		"nothing but the process runs":     {runs: wait / 2, stands: wait / 2, want: true},
		"it comes again for other reasons": {},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pulse{last: time.Now()}
			w := newWire("hello", p)
			deliver := func(count int) {
				w.see(false, &frame{op: "HMSG", reply: w.acks + strconv.Itoa(count) + ".1.9.1700000000000000000.0", header: nats.Header{}})
			}
			deliver(1)
			p.mu.Lock()
			p.awake += tc.runs
			p.last = p.last.Add(-tc.stands)
			p.mu.Unlock()
			deliver(2)
			k := &kit{cfg: Config{AckWait: wait}}
			again := w.deliveries[w.acks+"2.1.9.1700000000000000000.0"]
			if got := k.neglected(again); got != tc.want {
				t.Errorf("the worker is to blame: %v, want %v (silent for %s)", got, tc.want, again.silent)
			}
		})
	}
}
