// Package schedule says what has come due. The simulators look when they are asked, so no timer runs in between and a
// test can move the clock.
package schedule

import (
	"container/heap"
	"time"
)

// Queue holds ids by their time. It is not safe for parallel use; its owner's lock guards it. The zero value is ready.
type Queue struct{ items items }

// Add lets id come due at that time. An id may be added several times.
func (q *Queue) Add(at time.Time, id string) { heap.Push(&q.items, item{at: at, id: id}) }

// Due says whether anything has come due.
func (q *Queue) Due(now time.Time) bool { return len(q.items) > 0 && !q.items[0].at.After(now) }

// Next is what comes first, without taking it. Call it only when Due.
func (q *Queue) Next() (time.Time, string) { return q.items[0].at, q.items[0].id }

// Drop takes what Next showed.
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
