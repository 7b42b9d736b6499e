package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/kyma-project/keb/libs/event"
)

const (
	maxDetails   = 256 << 10
	claimTimeout = 10 * time.Second
)

// session is the state that the copies of an execution's Operation share.
type session struct {
	x          *Execution
	parameters json.RawMessage
	// limit is the context of Run.
	limit *limitedContext

	mu      sync.Mutex
	details map[string]json.RawMessage // decoded when first needed
	patch   map[string]json.RawMessage
	// removed are the objects of NoteRemoved.
	removed []string
	// values and components wait for the flush.
	values     map[string][]byte
	components map[string][]Override
	lost       bool
	// unreadable is the error of reading the stage memory.
	unreadable error
	// secrets are the secrets that the step received, see learn.
	secrets []string
	// invalid is the first error about a value that a result cannot contain.
	invalid error
	// closed makes calls of the step's goroutines after the return of Run ineffective.
	closed bool
}

func newSession(x *Execution) *session {
	return &session{x: x, parameters: x.Command.Operation.Parameters}
}

func (s *session) now() time.Time {
	if s.x.Now != nil {
		return s.x.Now()
	}
	return time.Now()
}

// spoil records the first invalid value. The caller holds mu.
func (s *session) spoil(err error) {
	if s.invalid == nil && !s.closed {
		s.invalid = err
	}
}

// readDetails returns the saved details of a worker, or nil.
func (s *session) readDetails(worker string) (json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.details == nil {
		s.details = map[string]json.RawMessage{}
		if raw := s.x.Command.Details; len(raw) > 0 {
			if err := json.Unmarshal(raw, &s.details); err != nil {
				return nil, fmt.Errorf("details: %w", err)
			}
		}
	}
	part := s.details[worker]
	if worker != s.x.Worker.Name || len(s.patch) == 0 {
		return part, nil
	}
	merged, err := MergeDetails(part, s.patch)
	if err != nil {
		return nil, fmt.Errorf("details of worker %q: %w", worker, err)
	}
	return merged, nil
}

func (s *session) saveDetails(own any) error {
	members, err := detailsPatch(own)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("save details: Run has already returned")
	}
	if err == nil {
		size := 0
		for name, value := range members {
			size += len(name) + len(value)
		}
		for name, value := range s.patch {
			if _, again := members[name]; !again {
				size += len(name) + len(value)
			}
		}
		if size > maxDetails {
			err = fmt.Errorf("save details: %d bytes, at most %d are allowed", size, maxDetails)
		}
	}
	if err != nil {
		s.spoil(err)
		return err
	}
	if s.patch == nil {
		s.patch = make(map[string]json.RawMessage, len(members))
	}
	maps.Copy(s.patch, members)
	return nil
}

func (s *session) noteRemoved(object string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && len(s.removed) < event.MaxRemoved && !slices.Contains(s.removed, object) {
		s.removed = append(s.removed, object)
	}
}

// detailsPatch returns the value to save as the members of a JSON object.
func detailsPatch(own any) (map[string]json.RawMessage, error) {
	raw, err := json.Marshal(own)
	if err != nil {
		return nil, fmt.Errorf("save details: %w", err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil || members == nil {
		return nil, fmt.Errorf("save details: %T encodes to %s, a JSON object is needed", own, jsonKind(raw))
	}
	if event.HoldsNUL(raw) {
		return nil, errors.New("save details: a text holds a NUL character, which cannot be stored")
	}
	return members, nil
}

// MergeDetails applies a patch to a worker's details, as the orchestrator does with the details of a result:
// members replace members with the same name, and null removes a member. part may be empty.
func MergeDetails(part json.RawMessage, patch map[string]json.RawMessage) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if len(part) > 0 {
		if err := json.Unmarshal(part, &members); err != nil {
			return nil, err
		}
	}
	if members == nil {
		members = map[string]json.RawMessage{}
	}
	for name, value := range patch {
		if string(value) == "null" {
			delete(members, name)
			continue
		}
		members[name] = value
	}
	return json.Marshal(members)
}

func jsonKind(raw []byte) string {
	switch raw[0] {
	case '[':
		return "a list"
	case '"':
		return "a text"
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '{':
		return "an object"
	}
	return "a number"
}

func (s *session) claim(ctx context.Context, name string, into any) error {
	if s.x.Claim == nil {
		return fmt.Errorf("claim credentials %q: this worker is not connected to a broker", name)
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	operation := &s.x.Command.Operation
	raw, err := s.x.Claim(ctx, event.CredentialsRequest{
		InstanceID: operation.InstanceID, OperationID: operation.ID, Name: name,
	})
	if err != nil {
		return fmt.Errorf("claim credentials %q: %w", name, err)
	}
	if name != event.ClaimNeighbours { // a number, not a secret
		s.learn(raw)
	}
	// The decoder's error would quote the secret.
	if json.Unmarshal(raw, into) != nil {
		return fmt.Errorf("claim credentials %q: the answer does not fit %T", name, into)
	}
	return nil
}

func (s *session) keep(ctx context.Context, value any) error {
	if s.x.Keep == nil {
		return errors.New("keep a value: this worker is not connected to a broker")
	}
	raw, err := json.Marshal(value)
	if err != nil {
		// The encoder's error may quote a secret.
		return fmt.Errorf("keep a value: %T does not encode to JSON", value)
	}
	if len(raw) > event.MaxKept {
		return fmt.Errorf("keep a value: %d bytes, at most %d are allowed", len(raw), event.MaxKept)
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	o := &s.x.Command.Operation
	if err := s.x.Keep(ctx, event.KeepRequest{InstanceID: o.InstanceID, OperationID: o.ID, Value: raw}); err != nil {
		return fmt.Errorf("keep a value: %w", err)
	}
	return nil
}

func (s *session) kept(ctx context.Context, into any) error {
	if s.x.Kept == nil {
		return errors.New("read what is kept: this worker is not connected to a broker")
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	o := &s.x.Command.Operation
	raw, err := s.x.Kept(ctx, event.KeptRequest{InstanceID: o.InstanceID, OperationID: o.ID})
	if err != nil {
		return fmt.Errorf("read what is kept: %w", err)
	}
	if len(raw) == 0 {
		return ErrNotKept
	}
	// The decoder's error would quote the value.
	if json.Unmarshal(raw, into) != nil {
		return fmt.Errorf("%w: it does not fit %T", ErrKeptBroken, into)
	}
	return nil
}

// close ends the session and returns its parts of the result.
func (s *session) close() (patch json.RawMessage, removed []string, invalid error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.closed = true }()
	if len(s.patch) > 0 {
		var err error
		if patch, err = json.Marshal(s.patch); err != nil {
			s.spoil(fmt.Errorf("save details: %w", err))
		}
		if size := event.StoredSize(patch); size > event.MaxDetails {
			s.spoil(fmt.Errorf("save details: they have %d bytes as the database writes them, at most %d are allowed", size, event.MaxDetails))
		}
		if name, ok := s.leakingMember(); ok {
			s.spoil(fmt.Errorf("details member %q holds a secret; keep secrets in the stage memory", name))
		}
	}
	if s.invalid != nil {
		return nil, s.removed, s.invalid
	}
	return patch, s.removed, nil
}

// memoryError returns the error of reading the stage memory, or nil.
func (s *session) memoryError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unreadable
}

func (s *session) isLost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}
