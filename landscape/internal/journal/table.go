package journal

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
)

// Table contains rows of one type by id. Rows are values: change a copy and Put it.
type Table[T any] struct {
	kind   string
	rows   map[string]T
	change func(id string, row T, gone bool)
}

// NewTable returns an empty table of that kind for Open.
func NewTable[T any](kind string) *Table[T] {
	return &Table[T]{kind: kind, rows: map[string]T{}}
}

// OnChange calls f, under the store's lock, for each row that is read from the file, put or deleted, so that its owner can maintain an
// index. Call it before Open.
func (t *Table[T]) OnChange(f func(id string, row T, gone bool)) { t.change = f }

// Index keeps an index of the rows by a key. Call it before Open; it replaces OnChange.
func (t *Table[T]) Index(x *Index, key func(row T) string) {
	t.OnChange(func(id string, row T, gone bool) {
		if gone {
			x.Set(id)
			return
		}
		x.Set(id, key(row))
	})
}

// Get returns the row with that id. Call it only in View or Update.
func (t *Table[T]) Get(id string) (T, bool) {
	row, ok := t.rows[id]
	return row, ok
}

// All iterates over the rows in any order. Call it only in View or Update.
func (t *Table[T]) All() iter.Seq2[string, T] { return maps.All(t.rows) }

// Sorted returns the ids in order. Call it only in View or Update.
func (t *Table[T]) Sorted() []string { return slices.Sorted(maps.Keys(t.rows)) }

// Put stages a row, which becomes visible when Update returns nil.
func (t *Table[T]) Put(tx *Tx, id string, row T) error {
	data, err := marshal(row)
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", t.kind, id, err)
	}
	_, exists := t.rows[id]
	return tx.stage(line{Table: t.kind, ID: id, Data: data, New: !exists}, func() { t.set(id, row) })
}

// Delete stages the removal of a row. A missing row is not an error.
func (t *Table[T]) Delete(tx *Tx, id string) error {
	if _, ok := t.rows[id]; !ok {
		return nil
	}
	return tx.stage(line{Table: t.kind, ID: id}, func() { t.unset(id) })
}

func (t *Table[T]) name() string { return t.kind }
func (t *Table[T]) len() int     { return len(t.rows) }

func (t *Table[T]) load(id string, data json.RawMessage) error {
	if len(data) == 0 {
		t.unset(id)
		return nil
	}
	var row T
	if err := json.Unmarshal(data, &row); err != nil {
		return fmt.Errorf("%s %s: %w", t.kind, id, err)
	}
	t.set(id, row)
	return nil
}

func (t *Table[T]) set(id string, row T) {
	t.rows[id] = row
	if t.change != nil {
		t.change(id, row, false)
	}
}

func (t *Table[T]) unset(id string) {
	row := t.rows[id]
	delete(t.rows, id)
	if t.change != nil {
		t.change(id, row, true)
	}
}

func (t *Table[T]) each(f func(id string, value any) error) error {
	for id, row := range t.rows {
		if err := f(id, row); err != nil {
			return err
		}
	}
	return nil
}
