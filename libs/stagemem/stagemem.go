// Package stagemem stores values that the steps of one stage share: overrides,
// kubeconfigs, tokens. Values are sealed and stored only in the memory of the NATS
// server, while the stage runs. If the server loses them, Check returns ErrLost, and
// the stage is repeated.
package stagemem

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/seal"
)

var (
	// ErrNotFound means that a key has no value.
	ErrNotFound = errors.New("not in the stage memory")
	// ErrLost means that the memory of a scope was used, and is lost.
	ErrLost = errors.New("the stage memory is lost")
)

const (
	// stream is the stream of the bucket.
	stream = "KV_" + event.StageBucket
	// directGet is the subject of reads that any replica of the bucket answers.
	directGet = "$JS.API.DIRECT.GET." + stream
	// subjects is the prefix of the subjects of the bucket's keys.
	subjects = "$KV." + event.StageBucket + "."
)

// The server's status after the last answer to a list, and in place of an answer if there is none.
const (
	statusEnd  = "204"
	statusNone = "404"
)

// noResults is the description of statusNone if nothing matches. Any other description means that a match could not be read.
const noResults = "No Results"

// pendingHeader is the header with the number of remaining answers.
const pendingHeader = "Nats-Num-Pending"

// errIncomplete means that values are missing from a list, for example because the server lost them while it answered.
var errIncomplete = errors.New("the list is not complete")

// errStale means that a replica of the bucket lags, and does not have the latest values.
var errStale = errors.New("a replica of the stage memory lags")

// staleWait is the wait before a replica that lags is read again.
const staleWait = 50 * time.Millisecond

// listTimeout limits one list if ctx has no earlier deadline.
const listTimeout = 5 * time.Second

// lostAfter is the timeout before a request is repeated once. A request that was in flight when the connection broke gets no answer, and a
// step would otherwise wait until its deadline.
const lostAfter = 2 * time.Second

// marker is the key that marks a scope as used. No encoded key is equal to it.
const marker = "="

// guestTimeout is how long a guest waits for the bucket. The orchestrator creates it again when it reconnects to the server.
const guestTimeout = 10 * time.Second

// maxKnown is the maximum number of scopes with a known marker.
const maxKnown = 10_000

// Scope identifies a stage attempt. Each stage attempt starts with an empty memory.
type Scope struct {
	OperationID, Stage string
	// StageAttempt starts at 1.
	StageAttempt int
}

// Memory gives access to the stage bucket. It is safe for concurrent use.
type Memory struct {
	js   jetstream.JetStream
	keys *seal.Keyring
	open func(context.Context, jetstream.JetStream) (jetstream.KeyValue, error)

	mu sync.Mutex
	kv jetstream.KeyValue // nil before the first use, and after the bucket was lost
	// known holds the scopes whose marker this process has seen. It never writes their marker again, so that values that are put after a
	// loss do not hide the loss.
	known map[string]struct{}
}

// New creates a Memory. It opens or creates the bucket at the first use.
func New(js jetstream.JetStream, keys *seal.Keyring) *Memory {
	return &Memory{js: js, keys: keys, open: bus.EnsureStageBucket, known: make(map[string]struct{})}
}

// NewGuest creates a Memory that never creates the bucket. It waits for the bucket within the deadline of each call, at most twelve
// seconds. It is for users of the bus without the right to create a bucket.
func NewGuest(js jetstream.JetStream, keys *seal.Keyring) *Memory {
	m := New(js, keys)
	m.open = func(ctx context.Context, js jetstream.JetStream) (jetstream.KeyValue, error) {
		ctx, cancel := context.WithTimeout(ctx, guestTimeout)
		defer cancel()
		return bus.AwaitStageBucket(ctx, js)
	}
	return m
}

// Put stores or replaces a value. The key may be any text except "". The value is sealed for this scope and key.
func (m *Memory) Put(ctx context.Context, s Scope, key string, value []byte) error {
	prefix, token, err := names(s, key)
	if err != nil {
		return fmt.Errorf("put into stage memory: %w", err)
	}
	full := prefix + token
	sealed, err := m.keys.Seal(value, []byte(full))
	if err != nil {
		return fmt.Errorf("put into stage memory: %w", err)
	}
	err = m.do(ctx, func(ctx context.Context, kv jetstream.KeyValue) error {
		if err := m.mark(ctx, kv, prefix); err != nil {
			return err
		}
		_, err := kv.PutString(ctx, full, sealed)
		return err
	})
	if err != nil {
		return fmt.Errorf("put %q into stage memory: %w", key, err)
	}
	return nil
}

// mark writes the marker of a scope unless it is known.
func (m *Memory) mark(ctx context.Context, kv jetstream.KeyValue, prefix string) error {
	if m.isKnown(prefix) {
		return nil
	}
	_, err := kv.Create(ctx, prefix+marker, nil)
	if err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return err
	}
	m.know(prefix)
	return nil
}

// Get returns a value, or ErrNotFound. If the value cannot be decrypted, the error wraps one of package seal.
func (m *Memory) Get(ctx context.Context, s Scope, key string) ([]byte, error) {
	prefix, token, err := names(s, key)
	if err != nil {
		return nil, fmt.Errorf("get from stage memory: %w", err)
	}
	full := prefix + token
	var entry jetstream.KeyValueEntry
	err = m.do(ctx, func(ctx context.Context, kv jetstream.KeyValue) (err error) {
		entry, err = m.read(ctx, kv, full)
		return err
	})
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, fmt.Errorf("get %q: %w", key, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("get %q from stage memory: %w", key, err)
	}
	plain, err := m.keys.Open(string(entry.Value()), []byte(full))
	if err != nil {
		return nil, fmt.Errorf("get %q from stage memory: %w", key, err)
	}
	return plain, nil
}

// List returns the values of all keys that start with prefix. The map is empty if there are none.
func (m *Memory) List(ctx context.Context, s Scope, prefix string) (map[string][]byte, error) {
	scope, err := s.prefix()
	if err != nil {
		return nil, fmt.Errorf("list stage memory: %w", err)
	}
	var values map[string][]byte
	err = m.do(ctx, func(ctx context.Context, _ jetstream.KeyValue) (err error) {
		values, err = m.list(ctx, scope, prefix)
		if errors.Is(err, errIncomplete) {
			values, err = m.list(ctx, scope, prefix) // values that have vanished are omitted
		}
		for errors.Is(err, errStale) && pause(ctx) {
			values, err = m.list(ctx, scope, prefix)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list stage memory: %w", err)
	}
	return values, nil
}

// read returns the last value of a key. In a cluster any replica answers, and one that lags, for example after it was frozen, does not have
// the latest values. So a missing value is looked for in the leader's index, and read again if it is there.
func (m *Memory) read(ctx context.Context, kv jetstream.KeyValue, full string) (jetstream.KeyValueEntry, error) {
	for {
		entry, err := kv.Get(ctx, full)
		if !errors.Is(err, jetstream.ErrKeyNotFound) {
			return entry, err
		}
		if n, leaderErr := m.onLeader(ctx, full); leaderErr != nil || n == 0 {
			return nil, cmp.Or(leaderErr, err)
		}
		if last, err := m.js.Conn().RequestWithContext(ctx, directGet+"."+subjects+full, nil); err == nil && last.Header.Get("KV-Operation") != "" {
			return nil, jetstream.ErrKeyNotFound // deleted
		}
		if !pause(ctx) {
			return nil, errStale
		}
	}
}

// onLeader returns the number of keys that match, in the index of the bucket's leader.
func (m *Memory) onLeader(ctx context.Context, keys string) (int, error) {
	request, err := json.Marshal(struct {
		Filter string `json:"subjects_filter"`
	}{subjects + keys})
	if err != nil {
		return 0, err
	}
	answer, err := m.js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.INFO."+stream, request)
	if err != nil {
		return 0, err
	}
	var info struct {
		Error *jetstream.APIError
		State struct {
			Subjects map[string]uint64
		}
	}
	if err := json.Unmarshal(answer.Data, &info); err != nil {
		return 0, fmt.Errorf("info of stream %s: %w", stream, err)
	}
	switch {
	case info.Error == nil:
		return len(info.State.Subjects), nil
	case info.Error.ErrorCode == jetstream.JSErrCodeStreamNotFound:
		return 0, jetstream.ErrStreamNotFound
	}
	return 0, info.Error
}

// pause waits before a replica that lags is read again. It reports whether ctx has not ended.
func pause(ctx context.Context) bool {
	timer := time.NewTimer(staleWait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// list requests the last message of each subject of the scope in one request. A watch would need a consumer, and the right to create
// one.
func (m *Memory) list(ctx context.Context, scope, prefix string) (map[string][]byte, error) {
	request, err := json.Marshal(struct {
		LastOf []string `json:"multi_last"`
	}{[]string{subjects + scope + "*"}})
	if err != nil {
		return nil, err
	}
	nc := m.js.Conn()
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	want, err := m.onLeader(ctx, scope+"*")
	if err != nil {
		return nil, err
	}
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is closing if this fails
	if err := nc.PublishRequest(directGet, inbox, request); err != nil {
		return nil, err
	}
	values := make(map[string][]byte)
	for got := 0; ; got++ {
		answer, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return nil, err
		}
		switch status := answer.Header.Get("Status"); {
		case status == statusEnd && answer.Header.Get(pendingHeader) == "0",
			status == statusNone && answer.Header.Get("Description") == noResults && got == 0:
			if got < want {
				return nil, fmt.Errorf("%w: it has %d of %d values", errStale, got, want)
			}
			return values, nil
		case status == statusEnd, status == statusNone:
			return nil, fmt.Errorf("%w: %d values arrived, then %s %s with %q remaining",
				errIncomplete, got, status, answer.Header.Get("Description"), answer.Header.Get(pendingHeader))
		case status != "":
			return nil, fmt.Errorf("the server answers %s %s", status, answer.Header.Get("Description"))
		case answer.Header.Get(jetstream.SubjectHeader) == "":
			return nil, errors.New("the server answers with a message that has no subject")
		case answer.Header.Get("KV-Operation") != "":
			continue // deleted
		}
		full := strings.TrimPrefix(answer.Header.Get(jetstream.SubjectHeader), subjects)
		token := strings.TrimPrefix(full, scope)
		if token == marker {
			continue
		}
		key, err := decode(token)
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		if values[key], err = m.keys.Open(string(answer.Data), []byte(full)); err != nil {
			return nil, fmt.Errorf("%q: %w", key, err)
		}
	}
}

// Check returns ErrLost if the memory of a scope that was used is lost, for example because the server restarted.
func (m *Memory) Check(ctx context.Context, s Scope) error {
	prefix, err := s.prefix()
	if err != nil {
		return fmt.Errorf("check stage memory: %w", err)
	}
	err = m.do(ctx, func(ctx context.Context, kv jetstream.KeyValue) error {
		_, err := m.read(ctx, kv, prefix+marker)
		return err
	})
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return fmt.Errorf("operation %s, stage %s, attempt %d: %w", s.OperationID, s.Stage, s.StageAttempt, ErrLost)
	}
	if err != nil {
		return fmt.Errorf("check stage memory: %w", err)
	}
	m.know(prefix)
	return nil
}

// Purge deletes the memory of all attempts of a stage, or of the whole operation if stage is empty. It purges the subjects: deleting each
// key would leave a marker per key in the bucket for a day.
func (m *Memory) Purge(ctx context.Context, operationID, stage string) error {
	if operationID == "" {
		return errors.New("purge stage memory: operation id is empty")
	}
	prefix := encode(operationID) + "."
	if stage != "" {
		prefix += encode(stage) + "."
	}
	m.forget(prefix)
	s, err := m.js.Stream(ctx, stream)
	if isMissing(err) {
		return nil
	}
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSubject(subjects+prefix+">"))
	}
	if err != nil && !isMissing(err) {
		return fmt.Errorf("purge stage memory of operation %s: %w", operationID, err)
	}
	return nil
}

// do runs f on the bucket, and repeats it once if there is no answer in time. The first attempt may have succeeded nevertheless.
func (m *Memory) do(ctx context.Context, f func(context.Context, jetstream.KeyValue) error) error {
	first, cancel := context.WithTimeout(ctx, lostAfter)
	defer cancel()
	err := m.once(first, f)
	if err != nil && first.Err() != nil && ctx.Err() == nil {
		err = m.once(ctx, f)
	}
	return err
}

// once runs f on the bucket. If the bucket is missing, it runs f again on a new one.
func (m *Memory) once(ctx context.Context, f func(context.Context, jetstream.KeyValue) error) error {
	kv, fresh, err := m.bucket(ctx)
	if err != nil {
		return err
	}
	err = f(ctx, kv)
	if !isMissing(err) || fresh {
		return err
	}
	m.mu.Lock()
	if m.kv == kv {
		m.kv = nil
	}
	m.mu.Unlock()
	if kv, _, err = m.bucket(ctx); err != nil {
		return err
	}
	return f(ctx, kv)
}

func (m *Memory) bucket(ctx context.Context) (kv jetstream.KeyValue, fresh bool, err error) {
	m.mu.Lock()
	kv = m.kv
	m.mu.Unlock()
	if kv != nil {
		return kv, false, nil
	}
	// open sends requests, so it runs without the lock. Two concurrent calls are harmless.
	if kv, err = m.open(ctx, m.js); err != nil {
		return nil, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kv = kv
	return kv, true, nil
}

func (m *Memory) isKnown(prefix string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.known[prefix]
	return ok
}

func (m *Memory) know(prefix string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) >= maxKnown {
		for k := range m.known { // remove any one: a forgotten scope costs one request
			delete(m.known, k)
			break
		}
	}
	m.known[prefix] = struct{}{}
}

func (m *Memory) forget(prefix string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for k := range m.known {
		if strings.HasPrefix(k, prefix) {
			delete(m.known, k)
		}
	}
}

// IsAway reports whether an error means that the bucket did not answer, or does not exist at present.
func IsAway(err error) bool {
	return isMissing(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrDisconnected)
}

// isMissing reports whether the bucket does not exist.
func isMissing(err error) bool {
	return errors.Is(err, jetstream.ErrBucketNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) ||
		errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders)
}
