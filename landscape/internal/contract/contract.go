// Package contract reads the requests of a simulated system, writes its answers, and records violations of its contract.
//
// Each system has a Book. The gate of the system attaches the book to every request, and records requests for unknown routes. A simulator
// rejects the same requests as the real system, in the same format. It calls Violation for requests that no correct client sends, with a
// header, query parameter or member that is missing, unknown or of the wrong type. Errors that a correct client can get are not
// violations: an expired token, a conflict, a missing object.
//
// Problems contain the names of members and headers, never their values, which may be secrets.
package contract

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Kept is the number of entries in a book.
const Kept = 20

// Entry is a request that violated the contract.
type Entry struct {
	Time time.Time `json:"time"`
	// Request is the method and the path with its query.
	Request string `json:"request"`
	// Problem describes the invalid part of the request.
	Problem string `json:"problem"`
}

// Record is the content of a book: the total number of violations, and the last of them, the oldest first.
type Record struct {
	Count int64   `json:"count"`
	Last  []Entry `json:"last"`
}

// Book records the violations of one system. It is safe for concurrent use.
type Book struct {
	now  func() time.Time
	save func(Record)

	mu     sync.Mutex
	record Record
}

// NewBook returns an empty book.
func NewBook(now func() time.Time) *Book { return &Book{now: now, save: func(Record) {}} }

// Restore restores the record of an earlier process, and calls save with each later state. Call it before the book is used.
func (b *Book) Restore(r Record, save func(Record)) { b.record, b.save = r, save }

// Record returns a copy of the book's content.
func (b *Book) Record() Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Record{Count: b.record.Count, Last: append([]Entry{}, b.record.Last...)}
}

// Clear removes every violation.
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

// Violation records a problem of r. It does nothing for a request without a book, as in a unit test.
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
	// Use a new slice, because save may still use the previous record.
	last := append(slices.Clone(b.record.Last), e)
	b.record.Last = last[max(0, len(last)-Kept):]
	b.save(b.record)
}
