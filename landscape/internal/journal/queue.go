package journal

import (
	"container/heap"
	"time"
)

// Queue contains ids ordered by the time when they are due. The simulators check it when a request arrives, so they need no timer and a test
// can move the clock. It is not safe for concurrent use; its owner's lock protects it. The zero value is empty.
type Queue struct{ items items }

// Add makes id due at that time. An id can be added several times.
func (q *Queue) Add(at time.Time, id string) { heap.Push(&q.items, item{at: at, id: id}) }

// Due reports whether an id is due.
func (q *Queue) Due(now time.Time) bool { return len(q.items) > 0 && !q.items[0].at.After(now) }

// Next returns the first id without removing it. Call it only if Due returns true.
func (q *Queue) Next() (time.Time, string) { return q.items[0].at, q.items[0].id }

// Drop removes the id that Next returned.
func (q *Queue) Drop() { heap.Pop(&q.items) }

type item struct {
	at time.Time
	id string
}

type items []item

func (s items) Len() int           { return len(s) }
func (s items) Less(i, j int) bool { return s[i].at.Before(s[j].at) }
func (s items) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *items) Push(x any)        { *s = append(*s, x.(item)) }
func (s *items) Pop() any {
	last := (*s)[len(*s)-1]
	*s = (*s)[:len(*s)-1]
	return last
}
