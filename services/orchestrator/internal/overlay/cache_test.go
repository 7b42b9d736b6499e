package overlay

import (
	"context"
	"io/fs"
	"log/slog"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/process"
)

// fakeStore keeps nothing. It calls saved when definitions are saved.
type fakeStore struct {
	Store

	saved func()
}

func (f *fakeStore) SaveDefinition(context.Context, *process.Process, time.Time) error { return nil }

func (f *fakeStore) Overlays(context.Context) (Version, error) { return Version{}, nil }

func (f *fakeStore) SaveCurrentDefinitions(context.Context, process.Set, time.Time) error {
	f.saved()
	return nil
}

func TestRefresh_FolderChangesMeanwhile_AppliesNext(t *testing.T) {
	folder := fstest.MapFS{}
	write := func(timeout string) {
		folder["a.yaml"] = &fstest.MapFile{Data: []byte("operation: update\nchanges: [{retime: {timeout: " + timeout + "}}]\n")}
	}
	write("1h")
	store := &fakeStore{saved: func() {}}
	c, err := Open(t.Context(), Config{
		Timeout: time.Minute, Folders: []fs.FS{folder},
		BuiltIn: []process.File{{Name: "update.yaml", Content: []byte("operation: update\nstages: [{name: a, steps: [{name: B, worker: c}]}]\n")}},
	}, Deps{Store: store, Changed: func(context.Context) {}, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	write("2h")
	c.found(readFolders(c.cfg.Folders))
	store.saved = func() {
		store.saved = func() {}
		write("3h")
		c.found(readFolders(c.cfg.Folders))
	}
	for _, want := range []time.Duration{2 * time.Hour, 3 * time.Hour} {
		require.NoError(t, c.Refresh(t.Context()))
		if got := c.Definitions().Current(event.Update).Timeout; got != want {
			t.Errorf("the timeout is %s, want %s", got, want)
		}
	}
}
