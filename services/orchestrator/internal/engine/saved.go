package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Saved records what a transition changed in the saved data of one worker: the previous values, so that the data before the transition
// follows from the data after it. A first value costs only its name.
type Saved struct {
	// Before holds the previous values of the changed members; null means that the member did not exist.
	Before members `json:"before,omitempty"`
	// Large names the changed members whose previous values were too large to record.
	Large []string `json:"large,omitempty"`
	// More means that not all changed members are recorded, because there are too many.
	More bool `json:"more,omitempty"`
}

// maxSaved limits the names and values in a Saved, in bytes.
const maxSaved = 2 << 10

// members is the saved data of one worker.
type members = map[string]json.RawMessage

// absent is the previous value of a member that did not exist.
var absent = json.RawMessage("null")

// isAbsent reports whether a value is null, which removes a member.
func isAbsent(value json.RawMessage) bool { return bytes.Equal(bytes.TrimSpace(value), absent) }

// newSaved returns the record of changes, given the previous values of the changed members, and the names of those whose previous values
// are not known.
func newSaved(previous members, large []string) Saved {
	var s Saved
	size := 0
	for _, name := range slices.Sorted(maps.Keys(previous)) {
		value := previous[name]
		if size+len(name)+len(value) > maxSaved {
			large = append(large, name)
			continue
		}
		size += len(name) + len(value)
		if s.Before == nil {
			s.Before = members{}
		}
		s.Before[name] = value
	}
	slices.Sort(large)
	for _, name := range large {
		if size += len(name); size > maxSaved {
			s.More = true
			break
		}
		s.Large = append(s.Large, name)
	}
	return s
}

// Members returns the names of the recorded members.
func (s *Saved) Members() []string {
	return slices.Concat(slices.Sorted(maps.Keys(s.Before)), s.Large)
}

// size returns the size of the record, in bytes.
func (s *Saved) size() int {
	size := 0
	for name, value := range s.Before {
		size += len(name) + len(value)
	}
	for _, name := range s.Large {
		size += len(name)
	}
	return size
}

// mergeSaved returns the record of two consecutive changes. The previous values are those before the earlier one.
func mergeSaved(earlier, later map[string]Saved) map[string]Saved {
	if len(earlier) == 0 {
		return later
	}
	merged := maps.Clone(earlier)
	for worker, l := range later {
		e, ok := earlier[worker]
		if !ok {
			merged[worker] = l
			continue
		}
		previous, large := members{}, slices.Clone(e.Large)
		for name, value := range l.Before {
			if !slices.Contains(e.Large, name) {
				previous[name] = value
			}
		}
		maps.Copy(previous, e.Before)
		for _, name := range l.Large {
			if _, known := e.Before[name]; !known && !slices.Contains(large, name) {
				large = append(large, name)
			}
		}
		s := newSaved(previous, large)
		s.More = s.More || e.More || l.More
		merged[worker] = s
	}
	return merged
}

// difference returns what changed between two states of the saved data. It is not nil, so that the start of an operation shows that its
// changes are recorded. Data that cannot be read counts as empty.
func difference(before, after json.RawMessage) map[string]Saved {
	was, is := membersOf(before), membersOf(after)
	changes := map[string]Saved{}
	for _, worker := range slices.Concat(slices.Collect(maps.Keys(was)), slices.Collect(maps.Keys(is))) {
		previous := members{}
		for name, value := range was[worker] {
			if now, ok := is[worker][name]; !ok || !equalJSON(value, now) {
				previous[name] = value
			}
		}
		for name := range is[worker] {
			if _, ok := was[worker][name]; !ok {
				previous[name] = absent
			}
		}
		if len(previous) > 0 {
			changes[worker] = newSaved(previous, nil)
		}
	}
	return changes
}

func membersOf(details json.RawMessage) map[string]members {
	workers := map[string]members{}
	if len(details) > 0 && json.Unmarshal(details, &workers) != nil {
		return nil
	}
	return workers
}

// equalJSON reports whether two JSON values are equal. The database changes spaces and the order of members.
func equalJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	decode := func(raw json.RawMessage) (v any, err error) {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		err = d.Decode(&v)
		return v, err
	}
	x, errX := decode(a)
	y, errY := decode(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

// SavedData is the saved data of an operation at a point of its history.
type SavedData struct {
	// Details has one key for each worker; nil if empty.
	Details json.RawMessage
	// Unknown names the members whose values at that point are not recorded, as worker.member; a worker alone means any of its members.
	Unknown []string
}

// SavedAround returns the saved data before and after the history entry i, derived from the current data. For a folded entry these are the
// data before its first and after its last try; what they changed counts as changed at the last one, also for other entries between them.
// recorded is false if the run of the entry started with a release that did not record
// changes.
func SavedAround(details json.RawMessage, history []Entry, i int) (before, after SavedData, recorded bool, err error) {
	for j := i; j >= 0 && !recorded; j-- {
		if history[j].Kind == KindStarted {
			recorded = history[j].Saved != nil
			break
		}
	}
	if !recorded {
		return before, after, false, nil
	}
	r := rewind{details: map[string]members{}, unknown: map[string]bool{}}
	if len(details) > 0 {
		if err := json.Unmarshal(details, &r.details); err != nil {
			return before, after, false, fmt.Errorf("read the saved details: %w", err)
		}
	}
	for j := len(history) - 1; j > i; j-- {
		r.undo(history[j].Saved)
	}
	if after, err = r.data(); err != nil {
		return before, after, false, err
	}
	r.undo(history[i].Saved)
	before, err = r.data()
	return before, after, true, err
}

// rewind is the saved data at a point that moves back through the history.
type rewind struct {
	details map[string]members
	unknown map[string]bool
}

func (r *rewind) undo(saved map[string]Saved) {
	for worker, s := range saved {
		own := r.details[worker]
		if own == nil {
			own = members{}
			r.details[worker] = own
		}
		if s.More {
			r.unknown[worker] = true
		}
		for name, value := range s.Before {
			if own[name] = value; isAbsent(value) {
				delete(own, name)
			}
			delete(r.unknown, worker+"."+name)
		}
		for _, name := range s.Large {
			delete(own, name)
			r.unknown[worker+"."+name] = true
		}
		if len(own) == 0 {
			delete(r.details, worker)
		}
	}
}

func (r *rewind) data() (SavedData, error) {
	d := SavedData{Unknown: slices.Sorted(maps.Keys(r.unknown))}
	if len(r.details) == 0 {
		return d, nil
	}
	var err error
	if d.Details, err = json.Marshal(r.details); err != nil {
		return d, fmt.Errorf("write the saved details: %w", err)
	}
	return d, nil
}
