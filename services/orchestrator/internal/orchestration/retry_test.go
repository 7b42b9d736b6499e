package orchestration

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestRetry_Members(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	candidate := func(id string, state State, change func(c *Candidate)) Candidate {
		c := Candidate{Member: Member{OperationID: id, InstanceID: "i-" + id, State: state}, Newest: true}
		if change != nil {
			change(&c)
		}
		return c
	}
	failed := candidate("f", Failed, nil)
	older := candidate("o", Failed, func(c *Candidate) { c.Newest = false })
	replaced := candidate("r", Failed, func(c *Candidate) { c.RetriedAs = "x" })
	good := candidate("s", Succeeded, nil)
	for name, c := range map[string]struct {
		from     State
		asked    []string
		found    []Candidate
		state    State
		replaced []string
		old      []string
		invalid  []string
	}{
		"all that have failed":                           {Failed, nil, []Candidate{failed}, Retrying, []string{"f"}, nil, nil},
		"all, with an older one":                         {Failed, nil, []Candidate{failed, older}, Retrying, []string{"f"}, []string{"o"}, nil},
		"nothing has failed":                             {Succeeded, nil, nil, Succeeded, nil, nil, nil},
		"some by id":                                     {Failed, []string{"f", "f", "nobody", "s", "o", "r"}, []Candidate{failed, older, replaced, good}, Retrying, []string{"f"}, []string{"o", "r"}, []string{"nobody", "s"}},
		"only wrong ones":                                {Failed, []string{"s"}, []Candidate{good}, Failed, nil, nil, []string{"s"}},
		"while it runs":                                  {InProgress, []string{"f", "o", "r"}, []Candidate{failed, older, replaced}, InProgress, []string{"f", "o"}, []string{"r"}, nil},
		"while it is about to run again":                 {Retrying, []string{"f"}, []Candidate{failed}, Retrying, []string{"f"}, nil, nil},
		"cancelled ones after a cancellation":            {Canceled, nil, []Candidate{failed, candidate("c", Canceled, nil), good}, Retrying, []string{"f", "c"}, nil, nil},
		"a cancelled one that was not cancelled with it": {Failed, []string{"c"}, []Candidate{candidate("c", Canceled, nil)}, Failed, nil, nil, []string{"c"}},
		"while it is paused":                             {Paused, nil, []Candidate{failed}, Paused, []string{"f"}, nil, nil},
		"before it has started there are no failed ones": {Pending, nil, nil, Pending, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Retry(&Orchestration{State: c.from, Description: "1 failed"}, c.asked, c.found, false, now)
			require.NoError(t, err)
			description := "1 failed"
			if c.from != c.state {
				description = "1 failed, retrying"
			}
			want := Retries{State: c.state, Description: description, Replaced: c.replaced, Old: c.old, Invalid: c.invalid}
			for i, m := range r.New {
				if m.State != Retrying || m.OperationID == r.Replaced[i] || m.InstanceID != "i-"+r.Replaced[i] || !m.DueAt.Equal(now) {
					t.Errorf("new member: %+v", m)
				}
			}
			r.New = nil
			if diff := cmp.Diff(want, r); diff != "" {
				t.Errorf("retries (-want +got):\n%s", diff)
			}
		})
	}
	for _, state := range []State{Canceling, Canceled} {
		if _, err := Retry(&Orchestration{State: state, Parameters: Parameters{Notification: true}}, nil, []Candidate{failed}, false, now); !errors.Is(err, ErrNotPossible) {
			t.Errorf("%s: %v", state, err)
		}
	}
}

func TestRetry_Immediate_IgnoresWindow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	var w Window
	require.NoError(t, json.Unmarshal([]byte(`{"begin":"220000+0000","end":"230000+0000"}`), &w))
	m := Member{OperationID: "f", State: Failed, Window: &w, DueAt: now.Add(-10 * time.Hour), WindowEnd: now.Add(-9 * time.Hour)}
	if next := m.Again(false, now); !next.DueAt.Equal(now.Add(14*time.Hour)) || !next.WindowEnd.Equal(now.Add(15*time.Hour)) {
		t.Errorf("due at %s, window until %s", next.DueAt, next.WindowEnd)
	}
	if next := m.Again(true, now); !next.DueAt.Equal(now) || !next.WindowEnd.IsZero() || !next.WindowBegin.IsZero() {
		t.Errorf("due at %s, window until %s", next.DueAt, next.WindowEnd)
	}
}
