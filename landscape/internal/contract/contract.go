// Package contract records where a client breaks the contract of a simulated system.
//
// Each system has a Book. The gate in front of the system attaches the book to every request, and records a request for a
// route that the system does not serve. A simulator refuses what the real system would refuse, in the real system's own form,
// and calls Violation for what no correct client sends: a header, query parameter or member that is missing, unknown or of the
// wrong type. A refusal that a correct client can meet is no violation: an expired token, a conflict, an object that is gone.
//
// Problems name members and headers, never their values, which may be secrets.
package contract

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Kept is how many entries a book keeps.
const Kept = 20

// Entry is one request that broke the contract.
type Entry struct {
	Time time.Time `json:"time"`
	// Request is the method and the path with its query.
	Request string `json:"request"`
	// Problem names the part of the request and what is wrong with it.
	Problem string `json:"problem"`
}

// Record is what a book holds: how many violations there ever were, and the last of them, oldest first.
type Record struct {
	Count int64   `json:"count"`
	Last  []Entry `json:"last"`
}

// Book holds the violations of one system. Its methods may be called at the same time.
type Book struct {
	now  func() time.Time
	save func(Record)

	mu     sync.Mutex
	record Record
}

// NewBook returns an empty book.
func NewBook(now func() time.Time) *Book { return &Book{now: now, save: func(Record) {}} }

// Restore puts back what an earlier process recorded, and calls save with each later state. Call it before the book is used.
func (b *Book) Restore(r Record, save func(Record)) { b.record, b.save = r, save }

// Record returns a copy of what the book holds.
func (b *Book) Record() Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Record{Count: b.record.Count, Last: append([]Entry{}, b.record.Last...)}
}

// Clear forgets every violation.
func (b *Book) Clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.record = Record{}
	b.save(b.record)
}

// Attach returns r with the book in its context, where Violation finds it.
func (b *Book) Attach(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), key{}, b))
}

type key struct{}

// Violation records what is wrong with r. It does nothing for a request that came past no gate, as in a unit test.
func Violation(r *http.Request, format string, args ...any) {
	b, ok := r.Context().Value(key{}).(*Book)
	if !ok {
		return
	}
	b.add(Entry{Request: r.Method + " " + r.URL.RequestURI(), Problem: fmt.Sprintf(format, args...)})
}

func (b *Book) add(e Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.Time = b.now().UTC()
	b.record.Count++
	// A new slice: the record that was handed to save is not changed afterwards.
	last := append(slices.Clone(b.record.Last), e)
	b.record.Last = last[max(0, len(last)-Kept):]
	b.save(b.record)
}
