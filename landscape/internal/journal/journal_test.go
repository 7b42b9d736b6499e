package journal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/landscape/internal/journal"
)

type row struct{ Text string }

func open(t *testing.T, path string) (*journal.Store, *journal.Table[row]) {
	t.Helper()
	table := journal.NewTable[row]("row")
	s, err := journal.Open(path, table)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s, table
}

func put(t *testing.T, s *journal.Store, table *journal.Table[row], id, text string) {
	t.Helper()
	require.NoError(t, s.Update(func(tx *journal.Tx) error { return table.Put(tx, id, row{text}) }))
}

func TestOpen_Reopened_HasLastVersions(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a", "rows.jsonl")
	s, table := open(t, path)
	for i := range 100 {
		put(t, s, table, "a", fmt.Sprint(i))
	}
	put(t, s, table, "b", "<&>")
	put(t, s, table, "c", "gone")
	require.NoError(t, s.Update(func(tx *journal.Tx) error { return table.Delete(tx, "c") }))
	before, err := s.Objects()
	require.NoError(t, err)

	// The second time reads the file that the first one compacted.
	for range 2 {
		require.NoError(t, s.Close())
		s, _ = open(t, path)
		after, err := s.Objects()
		require.NoError(t, err)
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("objects (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]int64{"row": 3}, s.Created()); diff != "" {
			t.Errorf("created (-want +got):\n%s", diff)
		}
	}
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	if lines := strings.Count(string(raw), "\n"); lines != 3 {
		t.Errorf("the compacted file has %d lines, want the counters and two rows:\n%s", lines, raw)
	}
}

func TestOpen_IncompleteLastLine_IsDropped(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	s, table := open(t, path)
	put(t, s, table, "a", "whole")
	require.NoError(t, s.Close())
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	require.NoError(t, err)
	_, err = f.WriteString(`{"t":"row","i":"b","v":{"Te`)
	require.NoError(t, err)
	_ = f.Close()
	s, table = open(t, path)
	put(t, s, table, "c", "later")
	s, table = open(t, path)
	s.View(func() {
		if diff := cmp.Diff([]string{"a", "c"}, table.Sorted()); diff != "" {
			t.Errorf("ids (-want +got):\n%s", diff)
		}
	})
}

func TestOpen_UnreadableLine_IsNamed(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"no JSON":       "{}\nnonsense\n{}\n",
		"unknown table": "{}\n{\"t\":\"else\",\"i\":\"a\",\"v\":{}}\n",
		"wrong type":    "{}\n{\"t\":\"row\",\"i\":\"a\",\"v\":7}\n",
	} {
		path := filepath.Join(t.TempDir(), "rows.jsonl")
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		_, err := journal.Open(path, journal.NewTable[row]("row"))
		if err == nil || !strings.Contains(err.Error(), "line 2") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error is %v, want one that names file and line", name, err)
		}
	}
}

func TestUpdate_Failed_ChangesNothing(t *testing.T) {
	t.Parallel()
	s, table := open(t, filepath.Join(t.TempDir(), "rows.jsonl"))
	stop := errors.New("stop")
	err := s.Update(func(tx *journal.Tx) error {
		tx.Next()
		if err := table.Put(tx, "a", row{"x"}); err != nil {
			return err
		}
		return stop
	})
	if !errors.Is(err, stop) {
		t.Errorf("error is %v", err)
	}
	s.View(func() {
		if _, ok := table.Get("a"); ok || s.Seq() != 0 {
			t.Error("the row or the number is there")
		}
	})
	require.NoError(t, s.Close())
	err = s.Update(func(tx *journal.Tx) error { return table.Put(tx, "a", row{"x"}) })
	if !errors.Is(err, journal.ErrClosed) {
		t.Errorf("a change after Close: %v", err)
	}
}

func TestNext_Reopened_IsUnique(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	var last int64
	for range 3 {
		s, table := open(t, path)
		err := s.Update(func(tx *journal.Tx) error {
			n := tx.Next()
			if n <= last {
				t.Errorf("number %d after %d", n, last)
			}
			last = n
			return table.Put(tx, "a", row{})
		})
		require.NoError(t, errors.Join(err, s.Close()))
	}
}
