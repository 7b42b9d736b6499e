package journal_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/landscape/internal/journal"
	"github.com/kyma-project/keb/libs/testkit"
)

func TestUpdate_DiskIsFull_LaterChangesAndTheNextOpenWork(t *testing.T) {
	testkit.FullDisk(t, func(t *testing.T, fill func(size int64), empty func()) {
		path := filepath.Join(t.TempDir(), "rows.jsonl")
		s, table := open(t, path)
		put(t, s, table, "a", "before")
		info, err := os.Stat(path)
		require.NoError(t, err)
		fill(info.Size() + 20) // half of the next line
		for range 2 {
			err := s.Update(func(tx *journal.Tx) error { return table.Put(tx, "b", row{strings.Repeat("x", 100)}) })
			if err == nil {
				t.Fatal("a change is kept on a full disk")
			}
		}
		if now, err := os.Stat(path); err != nil || now.Size() != info.Size() {
			t.Errorf("the file has %d bytes, want the %d of its whole lines", now.Size(), info.Size())
		}
		empty()
		put(t, s, table, "c", "after")
		require.NoError(t, s.Close())
		s, table = open(t, path)
		s.View(func() {
			for id, want := range map[string]string{"a": "before", "b": "", "c": "after"} {
				if got, _ := table.Get(id); got.Text != want {
					t.Errorf("row %s is %q, want %q", id, got.Text, want)
				}
			}
		})
	})
}
