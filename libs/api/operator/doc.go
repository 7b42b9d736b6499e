// Package operator is the operator API of the orchestrator: its client and the types on the wire, which the server, the command line and
// the tests share. The schemas in api/openapi.yaml are generated from the types and their comments.
package operator

// List is one page of a list.
type List[T any] struct {
	Data []T `json:"data"`
	// Count is the number of entries on this page.
	Count int `json:"count"`
	// TotalCount is the number of entries on all pages.
	TotalCount int `json:"totalCount"`
}

// All returns a list that contains all entries.
func All[T any](data []T) List[T] {
	return List[T]{Data: data, Count: len(data), TotalCount: len(data)}
}

// Error is the body of every error answer.
type Error struct {
	// Error is a human-readable message.
	Error string `json:"error"`
}
