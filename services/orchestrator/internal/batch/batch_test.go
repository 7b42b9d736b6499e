package batch

import (
	"strings"
	"testing"
	"time"
)

func TestOrder_Invalid_NamesTheField(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		order Order
		want  string
	}{
		{Order{Action: Retry, Reason: "r"}, ""},
		{Order{Action: Retry, Stage: "s", Reason: "r", Rate: MinRate}, ""},
		{Order{Action: Retry, Stage: "s", Step: "A", Reason: "r", Rate: MinRate}, ""},
		{Order{Action: Skip, Step: "s", Reason: "r", Rate: MaxRate}, ""},
		{Order{Action: Retry, Step: "s", Reason: "r"}, "step"},
		{Order{Action: Cancel, Stage: "s", Reason: "r"}, "stage"},
		{Order{Action: Skip, Reason: "r"}, "step"},
		{Order{Action: "hold", Reason: "r"}, "action"},
		{Order{Action: Retry, Reason: " "}, "reason"},
		{Order{Action: Retry, Reason: "a\nb"}, "reason"},
		{Order{Action: Retry, Reason: "r", Rate: MaxRate + 1}, "rate"},
		{Order{Action: Retry, Reason: "r", Stage: strings.Repeat("x", 300)}, "stage"},
	} {
		err := c.order.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.order, err, c.want)
		}
	}
}

func TestBatch_Rate_BoundsChunksAndPauses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rate  float64
		chunk int
		pause time.Duration
	}{
		{0, 100, 0}, {0.1, 1, 10 * time.Second}, {1, 1, time.Second}, {50, 10, 200 * time.Millisecond}, {1000, 100, 100 * time.Millisecond},
	} {
		b := Batch{Order: Order{Rate: c.rate}}
		if n := b.chunk(); n != c.chunk || b.pause(n) != c.pause {
			t.Errorf("rate %v: %d operations and a pause of %s, want %d and %s", c.rate, n, b.pause(n), c.chunk, c.pause)
		}
	}
}
