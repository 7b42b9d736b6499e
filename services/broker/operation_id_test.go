package broker_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"
)

func TestOperationID_NewOperations_GrowsWithTime(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	ids := []string{
		b.accepted(b.put("one", order(azure))), b.accepted(b.put("two", order(azure))), b.accepted(b.delete("one")),
	}
	for _, id := range ids {
		if parsed, err := uuid.Parse(id); err != nil || parsed.Version() != 7 {
			t.Errorf("operation id %s: version %d, %v; want 7", id, parsed.Version(), err)
		}
	}
	if !slices.IsSorted(ids) {
		t.Errorf("ids %v do not grow", ids)
	}
}
