//go:build linux

package installation

import (
	"testing"
	"time"
)

func TestSlopes_GrowingValue_IsFound(t *testing.T) {
	t.Parallel()
	start := time.Now()
	var usages []Usage
	for i := range 13 {
		at := float64(i)
		usages = append(usages, Usage{At: start.Add(time.Duration(i) * 5 * time.Minute), Values: map[string]float64{
			"flat": 100, "noisy": 100 + 8*float64(i%2), "grows": 100 + 2*at, "small": 1 + at,
		}})
	}
	got := map[string]Slope{}
	for _, s := range Slopes(usages) {
		got[s.Name] = s
	}
	for name, want := range map[string]bool{"flat": false, "noisy": false, "grows": true, "small": false} {
		if s := got[name]; s.Grows(10) != want {
			t.Errorf("%s: grows %t, want %t: %+v", name, !want, want, s)
		}
	}
	if s := got["grows"]; s.PerHour < 23.9 || s.PerHour > 24.1 || s.First != 104 || s.Last != 122 {
		t.Errorf("slope %+v, want 24 per hour, from 104 to 122", s)
	}
}

func TestNotVacuumed_MoreDeadRowsThanAllowed_AreFound(t *testing.T) {
	t.Parallel()
	before := Usage{DeadRows: []DeadRows{{"vacuumed", 900, 1000, 100}, {"left", 400, 1000, 100}, {"smaller", 100, 1000, 500}}}
	after := Usage{DeadRows: []DeadRows{{"vacuumed", 300, 1200, 100}, {"left", 601, 1500, 100}, {"smaller", 400, 1000, 50}, {"new", 500, 500, 50}}}
	if found := NotVacuumed(before, after); len(found) != 1 || found[0].Table != "left" {
		t.Errorf("%+v", found)
	}
}
