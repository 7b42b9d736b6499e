package limit

import (
	"cmp"
	"container/heap"
	"math"
	"slices"

	"github.com/kyma-project/keb/libs/event"
)

// Queue identifies operations that every limit treats alike. The pending operations of a queue start in order of arrival.
type Queue struct {
	Type          event.OperationType
	GlobalAccount string
	// Plan is the name of the plan.
	Plan   string
	Region string
}

// QueueOf returns the queue of an operation.
func QueueOf(op *event.Operation) Queue {
	return Queue{Type: op.Type, GlobalAccount: op.Context.GlobalAccountID, Plan: op.Plan.Name, Region: op.Runtime.Region}
}

// Keys returns the limits that apply to the operations of a queue.
func (q *Queue) Keys(limits *Set) []Key {
	return limits.OfOperation(&event.Operation{
		Type: q.Type, Context: event.Context{GlobalAccountID: q.GlobalAccount}, Plan: event.Plan{Name: q.Plan}, Runtime: event.Runtime{Region: q.Region},
	})
}

// Waiting is a queue with an operation that may start.
type Waiting struct {
	Queue
	// First is the arrival of the first operation that may start.
	First int64
}

// Window selects queues: those of upgrades, or all others, in a fixed order.
type Window struct {
	Upgrades bool
	// After is the queue before the first one; the zero value is before all.
	After Queue
	// Most is the maximum number of queues.
	Most int
}

// HasRoom reports whether some operation of the types of the window may have room. It does not need to know which operations wait.
func (w *Window) HasRoom(running map[Queue]int, limits *Set) bool {
	return slices.ContainsFunc(event.OperationTypes(), func(t event.OperationType) bool {
		return IsUpgrade(t) == w.Upgrades && !slices.ContainsFunc(limits.Limits, func(l Limit) bool {
			types := l.Scope[Type]
			whole := len(l.Scope) == 0 || len(l.Scope) == 1 && slices.Contains(types, string(t))
			if l.Operations == 0 || l.Each != "" || !whole {
				return false
			}
			used := 0
			for q, n := range running {
				if len(types) == 0 || slices.Contains(types, string(q.Type)) {
					used += n
				}
			}
			return used >= l.Operations
		})
	})
}

// Turn is the number of operations of a queue that may start.
type Turn struct {
	Queue
	N int
}

// IsUpgrade reports whether an operation belongs to an upgrade of many runtimes. Operations of customers come before it.
func IsUpgrade(t event.OperationType) bool {
	return t == event.UpgradeKyma || t == event.UpgradeCluster
}

// share identifies what the operations in progress of a global account are counted for: operations of customers and upgrades do not count
// against each other. Operations without a limit do not count.
type share struct {
	upgrade bool
	account string
}

func shareOf(q *Queue) share { return share{upgrade: IsUpgrade(q.Type), account: q.GlobalAccount} }

// NextTurns returns at most n turns, one Turn for each queue. A turn goes to the global account with the fewest operations in progress in relation
// to its weight, and within it to the queue with the first arrival. Queues without a limit do not compete: each may start n operations. A queue
// may have fewer operations than turns.
func NextTurns(waiting []Waiting, running map[Queue]int, limits *Set, n int) []Turn {
	room := newRoom(limits, running)
	accounts := map[share]*account{}
	var turns []Turn
	at := map[Queue]int{} // the index of the turns of a queue
	for _, w := range waiting {
		if len(room.keys(w.Queue)) == 0 {
			turns = append(turns, Turn{Queue: w.Queue, N: n})
			continue
		}
		of := shareOf(&w.Queue)
		a := accounts[of]
		if a == nil {
			a = &account{share: of, weight: limits.Weight(of.account)}
			accounts[of] = a
		}
		a.queues = append(a.queues, w)
	}
	for q, in := range running {
		if a := accounts[shareOf(&q)]; a != nil && len(room.keys(q)) > 0 {
			a.running += in
		}
	}
	order := make(order, 0, len(accounts))
	for _, a := range accounts {
		slices.SortFunc(a.queues, func(a, b Waiting) int { return cmp.Compare(a.First, b.First) })
		order = append(order, a)
	}
	heap.Init(&order)
	for len(order) > 0 && n > 0 {
		a := order[0]
		if !room.take(a.queues[0].Queue) {
			if a.queues = a.queues[1:]; len(a.queues) == 0 {
				heap.Pop(&order)
			} else {
				heap.Fix(&order, 0)
			}
			continue
		}
		n--
		a.running++
		q := a.queues[0].Queue
		if _, ok := at[q]; !ok {
			at[q] = len(turns)
			turns = append(turns, Turn{Queue: q})
		}
		turns[at[q]].N++
		heap.Fix(&order, 0)
	}
	return turns
}

// Place is the place of a pending operation in the queue of a limit.
type Place struct {
	// Limit is the name of the limit that has no room, or, if all have, of the first one.
	Limit string
	// Position counts from 1.
	Position int
}

// PlaceOf returns the place of a pending operation of a queue, which needs limits. ahead is the number of pending operations of its global
// account that arrived before. The position is exact as long as no operation arrives, ends or is held, and instances are free.
func PlaceOf(q Queue, ahead int, pending, running map[Queue]int, limits *Set) Place {
	room := newRoom(limits, running)
	keys := room.keys(q)
	of := keys[0]
	for _, k := range keys {
		if room.left[k] <= 0 {
			of = k
			break
		}
	}
	waiting, loads := map[share]int{}, map[share]int{}
	for other, n := range pending {
		if slices.Contains(room.keys(other), of) {
			waiting[shareOf(&other)] += n
		}
	}
	for other, n := range running {
		if len(room.keys(other)) > 0 {
			loads[shareOf(&other)] += n
		}
	}
	own := shareOf(&q)
	turn := float64(loads[own]+ahead) / limits.Weight(own.account)
	position := 1 + ahead
	for s, n := range waiting {
		switch {
		case s == own || s.upgrade && !own.upgrade:
		case !s.upgrade && own.upgrade:
			position += n
		default: // those whose turns are earlier
			position += min(n, max(0, int(math.Ceil(turn*limits.Weight(s.account)))-loads[s]))
		}
	}
	return Place{Limit: of.Limit.Name, Position: position}
}

// room is what the limits leave.
type room struct {
	limits *Set
	left   map[Key]int
	of     map[Queue][]Key
}

func newRoom(limits *Set, running map[Queue]int) *room {
	r := &room{limits: limits, left: map[Key]int{}, of: map[Queue][]Key{}}
	for q, n := range running {
		for _, k := range r.keys(q) {
			r.left[k] -= n
		}
	}
	return r
}

// keys returns the limits of a queue.
func (r *room) keys(q Queue) []Key {
	keys, ok := r.of[q]
	if !ok {
		keys = q.Keys(r.limits)
		r.of[q] = keys
		for _, k := range keys {
			if _, ok := r.left[k]; !ok {
				r.left[k] = k.Limit.Operations
			}
		}
	}
	return keys
}

// take takes a place in all limits of a queue, and reports whether all had one.
func (r *room) take(q Queue) bool {
	keys := r.keys(q)
	for _, k := range keys {
		if r.left[k] <= 0 {
			return false
		}
	}
	for _, k := range keys {
		r.left[k]--
	}
	return true
}

// account is a global account that waits.
type account struct {
	share
	weight  float64
	running int
	queues  []Waiting // by arrival
}

// order is a heap of accounts; the first one has the next turn.
type order []*account

func (o order) Len() int { return len(o) }

func (o order) Less(i, j int) bool {
	a, b := o[i], o[j]
	if a.upgrade != b.upgrade {
		return b.upgrade
	}
	if x, y := float64(a.running)/a.weight, float64(b.running)/b.weight; x != y {
		return x < y
	}
	return a.queues[0].First < b.queues[0].First
}

func (o order) Swap(i, j int) { o[i], o[j] = o[j], o[i] }

func (o *order) Push(x any) { *o = append(*o, x.(*account)) }

func (o *order) Pop() any {
	last := len(*o) - 1
	a := (*o)[last]
	*o = (*o)[:last]
	return a
}
