package replica

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fakeLease counts the renewals of a rank.
type fakeLease struct {
	rank, renewed int
}

func (f *fakeLease) Rank() int { return f.rank }

func (f *fakeLease) Renew(context.Context) error {
	f.renewed++
	return nil
}

func TestPresence_RankVanishes_MessagesAreRedelivered(t *testing.T) {
	t.Parallel()
	lease, times, noBus := &fakeLease{rank: 3}, 0, errors.New("no bus")
	var bus error
	p := NewPresence(PresenceConfig{Pause: time.Hour, Timeout: time.Hour}, func(context.Context) (int, error) {
		times++
		return 1, bus
	}, slog.New(slog.DiscardHandler))
	type result struct{ Redelivered, Renewed, Done bool }
	for _, step := range []struct {
		what string
		seen []int
		bus  error
		want result
	}{
		{"at the start, without the bus", nil, noBus, result{Redelivered: true}},
		{"at the start", nil, nil, result{Redelivered: true, Done: true}},
		{"with the first ranks", []int{1, 2, 3}, nil, result{Done: true}},
		{"without a change", []int{1, 2, 3}, nil, result{Done: true}},
		{"when one starts", []int{1, 2, 3, 4}, nil, result{Done: true}},
		{"when nothing was read", nil, nil, result{Done: true}},
		{"when one has ended, without the bus", []int{1, 3, 4}, noBus, result{Redelivered: true}},
		{"when one has ended", nil, nil, result{Redelivered: true, Done: true}},
		{"after that", []int{1, 3, 4}, nil, result{Done: true}},
		{"when Postgres has restarted", []int{}, nil, result{Redelivered: true, Renewed: true, Done: true}},
		{"when nothing was read since", nil, nil, result{Done: true}},
		{"when the own rank was not renewed", []int{4}, nil, result{Renewed: true, Done: true}},
		{"when it was", []int{3, 4}, nil, result{Done: true}},
	} {
		bus = step.bus
		before, renewed := times, lease.renewed
		p.Seen(step.seen)
		done := p.act(t.Context(), lease)
		if diff := cmp.Diff(step.want, result{times > before, lease.renewed > renewed, done}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
}

func TestPresence_BusIsBack_TriesAgain(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tries := 0
	p := NewPresence(PresenceConfig{Pause: time.Millisecond, Timeout: time.Hour}, func(context.Context) (int, error) {
		if tries++; tries < 3 {
			return 0, errors.New("no bus")
		}
		cancel()
		return 0, nil
	}, slog.New(slog.DiscardHandler))
	if err := p.Run(ctx, &fakeLease{}); err != nil || tries != 3 {
		t.Errorf("%d tries, error %v; want three", tries, err)
	}
}
