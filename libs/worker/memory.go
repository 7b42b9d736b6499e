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

	"github.com/kyma-project/keb/libs/stagemem"
)

// Memory is the stage memory of one attempt of one stage of an operation. In a worker it is on the bus; workertest
// uses a map.
type Memory interface {
	// Put stores a value under a key and replaces the previous one.
	Put(ctx context.Context, key string, value []byte) error
	// Get returns the value under a key, or ErrNotRemembered.
	Get(ctx context.Context, key string) ([]byte, error)
	// List returns all values whose keys have a prefix.
	List(ctx context.Context, prefix string) (map[string][]byte, error)
	// Check returns ErrStageLost if the memory is empty.
	Check(ctx context.Context) error
}

// maxRemembered keeps a sealed and encoded value below the maximum message size of NATS.
const maxRemembered = 512 << 10

// storedOverrides is the stage memory entry of one step and one component.
type storedOverrides struct {
	Component string `json:"component"`
	// Cursor is the cursor of the command. A later step has a larger one.
	Cursor  int64      `json:"cursor"`
	Entries []Override `json:"entries"`
}

func (s *session) remember(key string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
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
	if s.closed {
		return
	}
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
	value, err := s.x.Memory.Get(ctx, stagemem.ValueName(key))
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
	raw, err := s.x.Memory.List(ctx, stagemem.OverridePrefix)
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

// noteUnreadable records that the memory could not be read: the bus is unavailable, this worker's keyring differs from that of
// other workers, or the value was changed.
func (s *session) noteUnreadable(err error) {
	if errors.Is(err, ErrNotRemembered) || errors.Is(err, ErrStageLost) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unreadable = err
}

// mergeOverrides merges the overrides of this execution into the stored ones.
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
		if _, again := s.components[set.Component]; again && key == stagemem.OverrideName(s.x.Command.Step, set.Component) {
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

// learnOverrides records the secret values of stored overrides.
func (s *session) learnOverrides(value []byte) {
	var set storedOverrides
	if json.Unmarshal(value, &set) != nil {
		return // mergeOverrides reports the error
	}
	for _, e := range set.Entries {
		if e.Secret {
			s.learn([]byte(e.Value))
		}
	}
}

// checkLost reports whether the memory that earlier steps used is lost, and records it for the result.
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

// flush writes the step's values and overrides. It reports whether it has written anything.
//
// It first checks that the entries of earlier steps still exist. Otherwise this write would make a lost memory
// look complete, and a later step would miss a value instead of detecting the loss.
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
		if err := s.x.Memory.Put(ctx, stagemem.ValueName(key), value); err != nil {
			return wrote, fmt.Errorf("remember %q: %w", key, err)
		}
		wrote = true
	}
	for component, entries := range components {
		value, err := json.Marshal(storedOverrides{Component: component, Cursor: s.x.Command.Cursor, Entries: entries})
		if err != nil {
			return wrote, fmt.Errorf("overrides of component %q: %w", component, err)
		}
		if err := s.x.Memory.Put(ctx, stagemem.OverrideName(s.x.Command.Step, component), value); err != nil {
			return wrote, fmt.Errorf("overrides of component %q: %w", component, err)
		}
		wrote = true
	}
	return wrote, nil
}
