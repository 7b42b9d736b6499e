package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

func TestFactsAfter_Publication_UpdatesTheRow(t *testing.T) {
	b := setup(t)
	row := b.started(0)
	id := row.Operation.ID
	cursor := row.Cursor
	at := func(after int64) []FactRange { return []FactRange{{OperationID: id, After: after}} }
	through := func(after, through int64) []FactRange {
		return []FactRange{{OperationID: id, After: after, Through: through}}
	}
	want := func(what string, want ...FactRange) {
		t.Helper()
		got, err := b.Unpublished(t.Context(), epoch, 10)
		require.NoError(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: unpublished (-want +got):\n%s", what, diff)
		}
	}
	want("at first")
	require.NoError(t, b.FactsUnpublished(t.Context(), at(5)))
	require.NoError(t, b.FactsUnpublished(t.Context(), at(7)))
	want("the earliest counts", at(5)...)

	before := row.Version
	change := b.apply(b.load(id), succeeded(b.load(id)), epoch)
	written, err := b.Write(t.Context(), []*Change{change})
	if err != nil || len(written) != 1 || before != row.Version {
		t.Fatalf("%d written, error %v; facts_after must not change the version", len(written), err)
	}
	want("a change keeps it", at(5)...)
	later := int64(9)
	change = b.apply(b.load(id), succeeded(b.load(id)), epoch)
	change.FactsAfter = &later
	_, err = b.Write(t.Context(), []*Change{change})
	require.NoError(t, err)
	want("a change keeps the earliest", at(5)...)
	zero := int64(0)
	_, err = b.Write(t.Context(), []*Change{{Row: b.load(id), FactsAfter: &zero}})
	require.NoError(t, err)
	want("a change sets it", at(0)...)

	require.NoError(t, b.FactsPublished(t.Context(), through(5, 100)))
	want("another part is published", at(0)...)
	require.NoError(t, b.FactsPublished(t.Context(), through(0, cursor)))
	want("the operation has gone on", at(cursor)...)
	require.NoError(t, b.FactsPublished(t.Context(), through(cursor, b.load(id).Cursor)))
	want("all is published")
}

func TestEntriesAfter_Limit_AppliesPerOperation(t *testing.T) {
	b := setup(t)
	ids := []string{b.started(0).Operation.ID, b.started(1).Operation.ID}
	for _, id := range ids {
		_, err := b.Write(t.Context(), []*Change{b.apply(b.load(id), succeeded(b.load(id)), epoch)})
		require.NoError(t, err)
	}
	first := b.load(ids[0]).Cursor - 1
	lines, err := b.EntriesAfter(t.Context(), []FactRange{{OperationID: ids[0], After: first}, {OperationID: ids[1]}}, 1)
	require.NoError(t, err)
	if len(lines[ids[0]]) != 1 || lines[ids[0]][0].Cursor != first+1 || len(lines[ids[1]]) != 1 || lines[ids[1]][0].Cursor != 1 {
		t.Errorf("lines %+v", lines)
	}
	active, err := b.ActiveSince(t.Context(), epoch.Add(time.Hour), "00000000-0000-0000-0000-000000000000", 10)
	if len(active) != 2 || err != nil {
		t.Errorf("%d active operations, error %v", len(active), err)
	}
}
