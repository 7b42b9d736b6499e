package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kyma-project/keb/libs/worker/internal/entry"
)

// Memory is the memory of one attempt of one stage of an operation. The worker takes it from the bus; workertest
// keeps it in a map.
type Memory interface {
	// Put keeps a value under a key, in place of the one before.
	Put(ctx context.Context, key string, value []byte) error
	// Get is the value under a key, or ErrNotRemembered.
	Get(ctx context.Context, key string) ([]byte, error)
	// List is all values whose key starts with a prefix.
	List(ctx context.Context, prefix string) (map[string][]byte, error)
	// Check is ErrStageLost when nothing at all is in the memory.
	Check(ctx context.Context) error
}

// maxRemembered keeps a sealed and encoded value below what NATS takes as one message.
const maxRemembered = 512 << 10

// storedOverrides is the entry of the stage memory for one step and one component.
type storedOverrides struct {
	Component string `json:"component"`
	// Cursor is that of the command: of two steps, the later one has the larger.
	Cursor  int64      `json:"cursor"`
	Entries []Override `json:"entries"`
}

func (s *session) remember(key string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case key == "":
		s.spoil(errors.New("remember: the key is empty"))
	case len(value) > maxRemembered:
		s.spoil(fmt.Errorf("remember %q: %d bytes, at most %d are allowed", key, len(value), maxRemembered))
	case s.x.Memory == nil:
		s.spoil(fmt.Errorf("remember %q: %w", key, ErrNoStageMemory))
	default:
		if s.values == nil {
			s.values = map[string][]byte{}
		}
		s.values[key] = value
	}
}

func (s *session) setOverrides(component string, entries []Override) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.x.Memory == nil {
		s.spoil(fmt.Errorf("overrides of component %q: %w", component, ErrNoStageMemory))
		return
	}
	for _, e := range entries {
		if e.Key == "" {
			s.spoil(fmt.Errorf("overrides of component %q: an entry has no key", component))
			return
		}
	}
	if s.components == nil {
		s.components = map[string][]Override{}
	}
	s.components[component] = entries
}

func (s *session) recall(ctx context.Context, key string) ([]byte, error) {
	s.mu.Lock()
	value, own := s.values[key]
	s.mu.Unlock()
	if own {
		return slices.Clone(value), nil
	}
	if s.x.Memory == nil {
		return nil, fmt.Errorf("recall %q: %w", key, ErrNoStageMemory)
	}
	value, err := s.x.Memory.Get(ctx, entry.Value(key))
	if errors.Is(err, ErrNotRemembered) {
		if lost := s.checkLost(ctx); lost != nil {
			err = lost
		}
	}
	if err != nil {
		err = fmt.Errorf("recall %q: %w", key, err)
		s.noteUnreadable(err)
		return nil, err
	}
	s.learn(value)
	return value, nil
}

func (s *session) overrides(ctx context.Context) ([]ComponentOverrides, error) {
	if s.x.Memory == nil {
		return nil, fmt.Errorf("overrides: %w", ErrNoStageMemory)
	}
	raw, err := s.x.Memory.List(ctx, entry.OverridePrefix)
	if err == nil && len(raw) == 0 {
		err = s.checkLost(ctx)
	}
	if err != nil {
		err = fmt.Errorf("overrides: %w", err)
		s.noteUnreadable(err)
		return nil, err
	}
	return s.mergeOverrides(raw)
}

// noteUnreadable notes for the result that the memory did not say what it holds: the bus is away, this worker's keyring is not that of
// the others, or somebody has changed the value.
func (s *session) noteUnreadable(err error) {
	if errors.Is(err, ErrNotRemembered) || errors.Is(err, ErrStageLost) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unreadable = err
}

// mergeOverrides puts what this execution has set on top of what is stored.
func (s *session) mergeOverrides(raw map[string][]byte) ([]ComponentOverrides, error) {
	for _, value := range raw {
		s.learnOverrides(value)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var sets []storedOverrides
	for key, value := range raw {
		var set storedOverrides
		if err := json.Unmarshal(value, &set); err != nil {
			return nil, fmt.Errorf("overrides under %q: %w", key, err)
		}
		if _, again := s.components[set.Component]; again && key == entry.Override(s.x.Command.Step, set.Component) {
			continue
		}
		sets = append(sets, set)
	}
	slices.SortFunc(sets, func(a, b storedOverrides) int { return cmp.Compare(a.Cursor, b.Cursor) })
	for component, entries := range s.components {
		sets = append(sets, storedOverrides{Component: component, Entries: entries})
	}

	byComponent := map[string]map[string]Override{}
	for _, set := range sets {
		entries := byComponent[set.Component]
		if entries == nil {
			entries = map[string]Override{}
			byComponent[set.Component] = entries
		}
		for _, e := range set.Entries {
			entries[e.Key] = e
		}
	}
	var all []ComponentOverrides
	for _, component := range slices.Sorted(maps.Keys(byComponent)) {
		entries := slices.SortedFunc(maps.Values(byComponent[component]), func(a, b Override) int {
			return strings.Compare(a.Key, b.Key)
		})
		all = append(all, ComponentOverrides{Component: component, Entries: entries})
	}
	return all, nil
}

// learnOverrides notes the secret values of stored overrides.
func (s *session) learnOverrides(value []byte) {
	var set storedOverrides
	if json.Unmarshal(value, &set) != nil {
		return // mergeOverrides says what is wrong
	}
	for _, e := range set.Entries {
		if e.Secret {
			s.learn([]byte(e.Value))
		}
	}
}

// checkLost tells whether the memory that earlier steps have used is gone, and notes it for the result.
func (s *session) checkLost(ctx context.Context) error {
	if !s.x.Command.StageMemory {
		return nil
	}
	err := s.x.Memory.Check(ctx)
	if errors.Is(err, ErrStageLost) {
		s.mu.Lock()
		s.lost = true
		s.mu.Unlock()
	}
	return err
}

// flush writes what the step has remembered and set. It reports whether it has written anything.
//
// It first checks that what earlier steps put there still exists: otherwise this write would make an emptied memory
// look whole, and a later step would miss a value instead of noticing the loss.
func (s *session) flush(ctx context.Context) (wrote bool, err error) {
	s.mu.Lock()
	values, components := s.values, s.components
	s.mu.Unlock()
	if len(values)+len(components) == 0 {
		return false, nil
	}
	if err := s.checkLost(ctx); err != nil {
		return false, err
	}
	for key, value := range values {
		if err := s.x.Memory.Put(ctx, entry.Value(key), value); err != nil {
			return wrote, fmt.Errorf("remember %q: %w", key, err)
		}
		wrote = true
	}
	for component, entries := range components {
		value, err := json.Marshal(storedOverrides{Component: component, Cursor: s.x.Command.Cursor, Entries: entries})
		if err != nil {
			return wrote, fmt.Errorf("overrides of component %q: %w", component, err)
		}
		if err := s.x.Memory.Put(ctx, entry.Override(s.x.Command.Step, component), value); err != nil {
			return wrote, fmt.Errorf("overrides of component %q: %w", component, err)
		}
		wrote = true
	}
	return wrote, nil
}
