// Package operator is the operator API of the orchestrator: the types on the
// wire, which the server, the command line and the tests share, and its client.
// The schemas in api/openapi.yaml are generated from the types and their
// comments.
package operator

// List is one page of a list.
type List[T any] struct {
	Data []T `json:"data"`
	// Count is the number of entries of this page.
	Count int `json:"count"`
	// TotalCount is the number of entries in all.
	TotalCount int `json:"totalCount"`
}

// All is a list with everything in it.
func All[T any](data []T) List[T] {
	return List[T]{Data: data, Count: len(data), TotalCount: len(data)}
}

// Error is the body of every answer that is not a success.
type Error struct {
	// Error is for people.
	Error string `json:"error"`
}
