package contract

import "testing"

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
