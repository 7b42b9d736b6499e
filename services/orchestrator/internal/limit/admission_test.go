package limit_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/orchestrator/internal/limit"
)

// limits are limits on everything, on each global account and on each type; zero means none.
type limits struct {
	all, perAccount int
	perType         map[event.OperationType]int
	weights         map[string]float64
}

func (l *limits) set() *limit.Set {
	s := &limit.Set{Weights: l.weights}
	if l.all > 0 {
		s.Limits = append(s.Limits, limit.Limit{Name: "all", Operations: l.all})
	}
	if l.perAccount > 0 {
		s.Limits = append(s.Limits, limit.Limit{Name: "account", Each: limit.GlobalAccount, Operations: l.perAccount})
	}
	for t, n := range l.perType {
		s.Limits = append(s.Limits, limit.Limit{Name: "type", Scope: limit.Scope{limit.Type: {string(t)}}, Operations: n})
	}
	return s
}

func queue(t event.OperationType, account string) limit.Queue {
	return limit.Queue{Type: t, GlobalAccount: account, Plan: "azure"}
}

func TestNext_Limits_SelectInTurn(t *testing.T) {
	t.Parallel()
	const provision, upgrade = event.Provision, event.UpgradeKyma
	many, one, third := queue(provision, "many"), queue(provision, "one"), queue(provision, "third")
	for _, c := range []struct {
		name    string
		waiting []limit.Waiting
		running map[limit.Queue]int
		limits  limits
		n       int
		want    []limit.Turn
	}{
		{"nothing waits", nil, map[limit.Queue]int{many: 3}, limits{all: 5}, 10, nil},
		{"no limit", []limit.Waiting{{many, 1}, {one, 2}}, nil, limits{}, 10, []limit.Turn{{many, 10}, {one, 10}}},
		{"no room", []limit.Waiting{{many, 1}}, map[limit.Queue]int{one: 5}, limits{all: 5}, 10, nil},
		{"a limit below what is in progress", []limit.Waiting{{many, 1}}, map[limit.Queue]int{one: 50}, limits{all: 5}, 10, nil},
		{
			"the account with the fewest in progress first",
			[]limit.Waiting{{many, 1}, {one, 2}},
			map[limit.Queue]int{many: 4},
			limits{all: 5},
			10,
			[]limit.Turn{{one, 1}},
		},
		{"ties by arrival", []limit.Waiting{{many, 2}, {one, 1}}, nil, limits{all: 3}, 10, []limit.Turn{{one, 2}, {many, 1}}},
		{"the batch is full", []limit.Waiting{{many, 1}, {one, 2}}, nil, limits{all: 500}, 3, []limit.Turn{{many, 2}, {one, 1}}},
		{
			"a weight",
			[]limit.Waiting{{many, 1}, {one, 2}},
			nil,
			limits{all: 8, weights: map[string]float64{"one": 3}},
			10,
			[]limit.Turn{{many, 2}, {one, 6}},
		},
		{
			"operations of customers before upgrades",
			[]limit.Waiting{{queue(upgrade, "one"), 1}, {many, 2}},
			map[limit.Queue]int{many: 3},
			limits{all: 5},
			10,
			[]limit.Turn{{many, 2}},
		},
		{
			"upgrades do not count against operations of customers",
			[]limit.Waiting{{many, 1}, {one, 2}},
			map[limit.Queue]int{queue(upgrade, "many"): 3},
			limits{all: 4},
			10,
			[]limit.Turn{{many, 1}},
		},
		{
			"operations without a limit do not count",
			[]limit.Waiting{{many, 1}, {one, 2}},
			map[limit.Queue]int{queue(event.Deprovision, "many"): 3, one: 1},
			limits{perType: map[event.OperationType]int{provision: 2}},
			10,
			[]limit.Turn{{many, 1}},
		},
		{
			"upgrades get what is left",
			[]limit.Waiting{{queue(upgrade, "one"), 1}, {many, 2}},
			nil,
			limits{all: 5, perType: map[event.OperationType]int{provision: 2}},
			10,
			[]limit.Turn{{many, 2}, {queue(upgrade, "one"), 3}},
		},
		{
			"a full account does not stop others",
			[]limit.Waiting{{many, 1}, {one, 2}},
			map[limit.Queue]int{many: 2, one: 2, third: 90},
			limits{all: 100, perAccount: 2},
			10, nil,
		},
		{
			"all limits need room",
			[]limit.Waiting{{many, 1}, {one, 2}, {third, 3}},
			map[limit.Queue]int{many: 2},
			limits{all: 6, perAccount: 2},
			10,
			[]limit.Turn{{one, 2}, {third, 2}},
		},
		{
			"another queue of an account whose first queue has no room",
			[]limit.Waiting{{many, 1}, {queue(event.Update, "many"), 2}},
			map[limit.Queue]int{one: 1},
			limits{all: 3, perType: map[event.OperationType]int{provision: 1}},
			10,
			[]limit.Turn{{queue(event.Update, "many"), 2}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, limit.NextTurns(c.waiting, c.running, c.limits.set(), c.n)); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
		})
	}
}

// A place is right if the operation starts exactly when those before it have started, whatever the order of arrival is.
func TestPlaceOf_RandomQueues_CountsEarlierTurns(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		set := (&limits{all: 1, weights: map[string]float64{"a": 1 + float64(rng.IntN(3))}}).set()
		running := map[limit.Queue]int{queue(event.Provision, "a"): rng.IntN(4), queue(event.UpgradeKyma, "b"): 1 + rng.IntN(4)}
		pending, ahead := map[limit.Queue]int{}, 0
		for _, account := range []string{"a", "b", "c"} {
			for _, kind := range []event.OperationType{event.Provision, event.UpgradeKyma} {
				pending[queue(kind, account)] = rng.IntN(5)
			}
		}
		own := queue([]event.OperationType{event.Provision, event.UpgradeKyma}[rng.IntN(2)], "b")
		pending[own]++
		ahead = rng.IntN(pending[own])
		place := limit.PlaceOf(own, ahead, pending, running, set)

		// Take turns until it is the turn of the operation. Ties go to its account, as if it had arrived first.
		position := 1
		for left := ahead; ; position++ {
			var waiting []limit.Waiting
			for q, n := range pending {
				if n > 0 {
					first := int64(1)
					if q != own {
						first = 2
					}
					waiting = append(waiting, limit.Waiting{Queue: q, First: first})
				}
			}
			free := 0
			for _, n := range running {
				free += n
			}
			set.Limits[0].Operations = free + 1
			next := limit.NextTurns(waiting, running, set, 1)[0].Queue
			if next == own {
				if left == 0 {
					break
				}
				left--
			}
			pending[next]--
			running[next]++
		}
		if place.Limit != "all" || place.Position != position {
			t.Fatalf("seed %d: place %+v, want position %d", seed, place, position)
		}
	}
}

// The decision with 10,000 accounts must be cheap, because it is made while the admission is locked.
func BenchmarkNext_ManyAccounts(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	var waiting []limit.Waiting
	running := map[limit.Queue]int{}
	for i := range 10_000 {
		q := queue(event.Provision, fmt.Sprint(i))
		waiting = append(waiting, limit.Waiting{Queue: q, First: rng.Int64()})
		running[q] = rng.IntN(3)
	}
	set := (&limits{all: 20_000, perAccount: 3}).set()
	for b.Loop() {
		limit.NextTurns(waiting, running, set, 200)
	}
}
