package overlay_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
	"github.com/kyma-project/keb/services/orchestrator/internal/overlay"
)

var errGone = errors.New("gone")

// fakeStore keeps definitions as text, and counts reads.
type fakeStore struct {
	saved map[string][]byte
	reads int
}

func (f *fakeStore) SaveDefinition(_ context.Context, p *process.Process, _ time.Time) error {
	f.saved[p.Hash()] = p.Canonical()
	return nil
}

func (f *fakeStore) Definition(_ context.Context, hash string) (*process.Process, error) {
	f.reads++
	if _, ok := f.saved[hash]; !ok {
		return nil, errGone
	}
	return process.Parse(f.saved[hash])
}

func (f *fakeStore) DefinitionHashes(context.Context) ([]string, error) {
	return slices.Sorted(maps.Keys(f.saved)), nil
}

func load(t *testing.T, step string) process.Set {
	t.Helper()
	set, err := process.Load(fstest.MapFS{"update.yaml": {Data: []byte(`
operation: update
stages:
  - name: change
    steps: [{name: ` + step + `, worker: alpha}]
`)}})
	require.NoError(t, err)
	return set
}

func TestPinned_FilesChanged_ReturnsOldDefinition(t *testing.T) {
	f := &fakeStore{saved: map[string][]byte{}}
	before, after := load(t, "Before"), load(t, "After")
	for _, set := range []process.Set{before, after} {
		d, err := overlay.NewDefinitions(t.Context(), f, set, time.Now())
		require.NoError(t, err)
		if got := d.Current(event.Update).Hash(); got != set[event.Update].Hash() || d.Current(event.Provision) != nil {
			t.Errorf("the current definition is %s, want %s", got, set[event.Update].Hash())
		}
		for range 3 {
			p, err := d.Pinned(t.Context(), before[event.Update].Hash())
			if err != nil || p.Stages[0].Steps[0].Name != "Before" {
				t.Fatalf("the pinned definition is %+v, error %v", p, err)
			}
		}
	}
	if f.reads != 1 {
		t.Errorf("%d reads, want one of the old definition by the second process", f.reads)
	}
}

func TestPinned_Missing_IsLoadedAgain(t *testing.T) {
	f := &fakeStore{saved: map[string][]byte{}}
	d, err := overlay.NewDefinitions(t.Context(), f, load(t, "Before"), time.Now())
	require.NoError(t, err)
	other := load(t, "Other")[event.Update]
	if _, err := d.Pinned(t.Context(), other.Hash()); !errors.Is(err, errGone) {
		t.Errorf("error is %v, want %v", err, errGone)
	}
	f.saved[other.Hash()] = other.Canonical() // by an orchestrator of another version
	if p, err := d.Pinned(t.Context(), other.Hash()); err != nil || p.Hash() != other.Hash() {
		t.Errorf("definition %v, error %v", p, err)
	}
}

func TestReplace_NewDefinitions_AreStoredAndOldOnesStayPinned(t *testing.T) {
	f := &fakeStore{saved: map[string][]byte{}}
	before, after := load(t, "Before"), load(t, "After")
	d, err := overlay.NewDefinitions(t.Context(), f, before, time.Now())
	require.NoError(t, err)
	first := d.Current(event.Update)
	require.NoError(t, d.Replace(t.Context(), after, time.Now()))
	if got := d.Current(event.Update).Hash(); got != after[event.Update].Hash() || f.saved[got] == nil {
		t.Errorf("the current definition is %s, stored %t; want %s", got, f.saved[got] != nil, after[event.Update].Hash())
	}
	if p, err := d.Pinned(t.Context(), first.Hash()); err != nil || p != first {
		t.Errorf("the pinned definition is %+v, error %v", p, err)
	}
	// A definition that returns is the same one, with the metrics that it had.
	require.NoError(t, d.Replace(t.Context(), load(t, "Before"), time.Now()))
	if d.Current(event.Update) != first {
		t.Error("the definition that returns is a copy")
	}
}
