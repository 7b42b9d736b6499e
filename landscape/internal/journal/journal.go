// Package journal stores the data of a simulated system in tables in memory, and appends every change to a file of JSON lines before the
// change becomes visible. A change is one write call, so a killed process loses no change that it has confirmed. The file is not synced to
// the disk: the simulators need not survive a power loss.
package journal

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// ErrClosed is returned by a change after Close.
var ErrClosed = errors.New("journal: closed")

// Object is a row of a table in the admin API.
type Object struct {
	Kind string
	ID   string
	Data json.RawMessage
}

// line is a line of the file: a changed row, or the counters (the first line of a compacted file).
type line struct {
	Table   string           `json:"t,omitempty"`
	ID      string           `json:"i,omitempty"`
	Data    json.RawMessage  `json:"v,omitempty"` // absent: the row is gone
	New     bool             `json:"n,omitempty"`
	Seq     int64            `json:"s,omitempty"`
	Created map[string]int64 `json:"c,omitempty"`
}

// AnyTable is a Table of any type.
type AnyTable interface {
	name() string
	load(id string, data json.RawMessage) error
	each(func(id string, value any) error) error
	len() int
}

// Store is the set of tables of one system. Tables may only be used within View and Update, which lock the store.
type Store struct {
	path   string
	tables map[string]AnyTable
	mu     sync.Mutex
	file   *os.File
	// size is the size of the complete lines in the file; torn means that an incomplete line may follow them.
	size    int64
	torn    bool
	closed  bool
	seq     int64
	created map[string]int64
}

// Open reads an existing file, fills the tables, and compacts the file. An empty path keeps all data in memory. It drops an incomplete last
// line, which a killed process leaves. Any other unreadable line is an error with the file and the line.
func Open(path string, tables ...AnyTable) (*Store, error) {
	s := &Store{path: path, tables: map[string]AnyTable{}, created: map[string]int64{}}
	for _, t := range tables {
		s.tables[t.name()] = t
	}
	if path == "" {
		return s, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	if err := s.replay(); err != nil {
		return nil, fmt.Errorf("open journal %s: %w", path, err)
	}
	if err := s.compact(); err != nil {
		return nil, fmt.Errorf("compact journal %s: %w", path, err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open journal: %w", err), file.Close())
	}
	s.file, s.size = file, info.Size()
	return s, nil
}

// Close closes the file. Later changes return ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

func (s *Store) replay() error {
	file, err := os.Open(s.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	r := bufio.NewReaderSize(file, 1<<20)
	for n := 1; ; n++ {
		raw, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var l line
		if err := json.Unmarshal(raw, &l); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		if err := s.load(l); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
}

func (s *Store) load(l line) error {
	s.seq = max(s.seq, l.Seq)
	if l.Table == "" {
		s.created = map[string]int64{}
		maps.Copy(s.created, l.Created)
		return nil
	}
	t, ok := s.tables[l.Table]
	if !ok {
		return fmt.Errorf("unknown table %q", l.Table)
	}
	if l.New {
		s.created[l.Table]++
	}
	return t.load(l.ID, l.Data)
}

// compact writes the counters and the current rows to a new file and renames it, so that a crash leaves a complete file.
func (s *Store) compact() error {
	file, err := os.CreateTemp(filepath.Dir(s.path), filepath.Base(s.path)+".*.new")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	w := bufio.NewWriterSize(file, 1<<20)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	err = enc.Encode(line{Seq: s.seq, Created: s.created})
	for _, name := range slices.Sorted(maps.Keys(s.tables)) {
		if err != nil {
			break
		}
		err = s.tables[name].each(func(id string, value any) error {
			data, err := marshal(value)
			if err != nil {
				return err
			}
			return enc.Encode(line{Table: name, ID: id, Data: data})
		})
	}
	if err == nil {
		err = w.Flush()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), s.path)
}

// View runs read with the store locked.
func (s *Store) View(read func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	read()
}

// Update runs change with the store locked, writes the staged changes with one write call, and then makes them visible. After an error of
// change or of the write, nothing is changed.
func (s *Store) Update(change func(tx *Tx) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	tx := &Tx{store: s, seq: s.seq}
	if err := change(tx); err != nil {
		return err
	}
	if len(tx.apply) == 0 {
		return nil
	}
	if err := s.write(tx.buf.Bytes()); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	s.seq = tx.seq
	for _, name := range tx.created {
		s.created[name]++
	}
	for _, apply := range tx.apply {
		apply()
	}
	return nil
}

// write appends complete lines. It removes the remains of a failed write, at the latest before the next one, because a line after an
// incomplete one could not be read.
func (s *Store) write(lines []byte) error {
	if s.file == nil {
		return nil
	}
	if s.torn {
		if err := s.file.Truncate(s.size); err != nil {
			return err
		}
		s.torn = false
	}
	if _, err := s.file.Write(lines); err != nil {
		s.torn = s.file.Truncate(s.size) != nil
		return err
	}
	s.size += int64(len(lines))
	return nil
}

// Created returns the total number of created rows of each table. An Update of an existing row does not count.
func (s *Store) Created() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.created)
}

// Count returns the number of rows of each table.
func (s *Store) Count() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := make(map[string]int64, len(s.tables))
	for name, t := range s.tables {
		counts[name] = int64(t.len())
	}
	return counts
}

// Objects lists every row, ordered by table and id.
func (s *Store) Objects() ([]Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var objects []Object
	for name, t := range s.tables {
		err := t.each(func(id string, value any) error {
			data, err := marshal(value)
			objects = append(objects, Object{Kind: name, ID: id, Data: data})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", name, err)
		}
	}
	slices.SortFunc(objects, func(a, b Object) int {
		if c := strings.Compare(a.Kind, b.Kind); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return objects, nil
}

// Tx collects the changes of one Update.
type Tx struct {
	store   *Store
	buf     bytes.Buffer
	seq     int64
	created []string
	apply   []func()
}

// Next returns the next number of the store's sequence, which starts at 1 and is unique across restarts.
func (tx *Tx) Next() int64 {
	tx.seq++
	return tx.seq
}

func (tx *Tx) stage(l line, apply func()) error {
	l.Seq = tx.seq
	enc := json.NewEncoder(&tx.buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(l); err != nil {
		return fmt.Errorf("encode %s %s: %w", l.Table, l.ID, err)
	}
	if l.New {
		tx.created = append(tx.created, l.Table)
	}
	tx.apply = append(tx.apply, apply)
	return nil
}

// marshal does not escape <, > and &, which are frequent in kubeconfigs and selectors.
func marshal(v any) (json.RawMessage, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}

// Seq returns the last number of the sequence. Call it only in View or Update.
func (s *Store) Seq() int64 { return s.seq }
