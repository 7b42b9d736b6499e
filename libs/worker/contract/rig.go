package contract

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/stagemem"
)

const (
	natsReady = 30 * time.Second
	userKit   = "kit"
	// serverPayload is the limit of production.
	serverPayload = 1 << 20
)

// rig is the bus of the checks: a NATS server with the worker's user and an administrator, and the administrator's connection.
type rig struct {
	cfg   Config
	dir   string
	pulse *pulse
	wire  *wire
	spec  event.ConsumerSpec
	keys  *seal.Keyring
	key   string
	// given are the stage keys that a new instance gets.
	given  string
	claims *claims
	states *states

	password, kitPassword string

	server *server.Server
	bus    *bus.Bus
	memory *stagemem.Memory
	// stopAnswering, stopKeeping and stopExtending end these answers, and mute the orchestrator's; nil without such answers.
	stopAnswering, stopKeeping, stopExtending, mute func()

	mu   sync.Mutex
	addr string
}

func newRig(ctx context.Context, cfg Config) (r *rig, err error) {
	p := newPulse()
	r = &rig{
		cfg: cfg, pulse: p, wire: newWire(cfg.Worker, p), claims: newClaims(), states: &states{outdated: map[event.CommandRef]bool{}},
		spec: event.CommandsConsumer(cfg.Worker),
	}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	r.spec.AckWait = cfg.AckWait
	if r.password, err = random("nats-"); err != nil {
		return r, err
	}
	if r.kitPassword, err = random("kit-"); err != nil {
		return r, err
	}
	r.key = "check:" + seal.NewKey()
	r.given = r.key
	if r.keys, err = seal.ParseKeyring(r.key); err != nil {
		return r, err
	}
	if r.dir, err = os.MkdirTemp("", "keb-worker-check-"); err != nil {
		return r, err
	}
	if err := r.start(ctx); err != nil {
		return r, err
	}
	return r, r.furnish(ctx)
}

// random returns a random secret.
func random(prefix string) (string, error) {
	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err != nil {
		return "", err
	}
	return prefix + hex.EncodeToString(raw), nil
}

// start starts the server and connects to it.
func (r *rig) start(ctx context.Context) error {
	rights := event.WorkerUser(r.cfg.Worker)
	permissions := &server.Permissions{
		Publish:   &server.SubjectPermission{Allow: rights.Publish},
		Subscribe: &server.SubjectPermission{Allow: rights.Subscribe},
	}
	if rights.Answers {
		permissions.Response = &server.ResponsePermission{MaxMsgs: 1, Expires: event.AnswerTime}
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: "keb-worker-check", Host: "127.0.0.1", Port: server.RANDOM_PORT, MaxPayload: serverPayload,
		JetStream: true, StoreDir: filepath.Join(r.dir, "nats"), JetStreamMaxMemory: 256 << 20, JetStreamMaxStore: 4 << 30,
		Users: []*server.User{
			{Username: userKit, Password: r.kitPassword},
			{Username: rights.Name, Password: r.password, Permissions: permissions},
		},
		NoSigs: true, NoLog: true,
	})
	if err != nil {
		return fmt.Errorf("start NATS: %w", err)
	}
	srv.Start()
	if !srv.ReadyForConnections(natsReady) {
		srv.Shutdown()
		return fmt.Errorf("start NATS: not ready within %s", natsReady)
	}
	r.server = srv
	if r.bus, err = bus.Connect(ctx, bus.Config{
		Name: "keb-worker-check", User: userKit, Password: r.kitPassword, Timeout: r.cfg.Patience,
	}, bus.Deps{InProcess: srv}); err != nil {
		return err
	}
	r.memory = stagemem.New(r.bus.JetStream(), r.keys)
	if r.stopAnswering, err = r.answerClaims(); err != nil {
		return err
	}
	if r.stopKeeping, err = r.answerKept(); err != nil {
		return err
	}
	if r.stopExtending, err = r.answerExtend(); err != nil {
		return err
	}
	if r.mute, err = r.answerCurrent(); err != nil {
		return err
	}
	addr, ok := srv.Addr().(*net.TCPAddr)
	if !ok {
		return errors.New("start NATS: it has no address")
	}
	r.mu.Lock()
	r.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(addr.Port))
	r.mu.Unlock()
	return nil
}

// furnish creates the streams, the bucket and the worker's consumer, like the orchestrator.
func (r *rig) furnish(ctx context.Context) error {
	if err := r.bus.EnsureStreams(ctx); err != nil {
		return err
	}
	return r.bus.EnsureConsumer(ctx, r.spec)
}

func (r *rig) stop() {
	for _, stop := range []func(){r.stopAnswering, r.stopKeeping, r.stopExtending, r.mute} {
		if stop != nil {
			stop()
		}
	}
	r.stopAnswering, r.stopKeeping, r.stopExtending, r.mute = nil, nil, nil, nil
	if r.bus != nil {
		r.bus.Close()
	}
	if r.server != nil {
		r.server.Shutdown()
		r.server.WaitForShutdown()
	}
	r.bus, r.server = nil, nil
}

func (r *rig) close() {
	r.stop()
	r.pulse.close()
	_ = os.RemoveAll(r.dir) // a temporary folder
}

// target returns the address of the server for the doors.
func (r *rig) target() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addr
}

// environment returns the environment of a worker behind a door.
func (r *rig) environment(d *door) Environment {
	return Environment{
		URL: d.url(), User: event.WorkerUserName(r.cfg.Worker), Password: r.password, StageKeys: r.given,
		Concurrency: r.cfg.Concurrency, Drain: r.cfg.Drain,
	}
}

// secrets returns the names of the secrets of a worker, by value.
func (r *rig) secrets() map[string]string {
	secrets := r.claims.secrets()
	secrets[r.password] = "the password of NATS"
	secrets[strings.SplitN(r.key, ":", 2)[1]] = "the key of the stage memory"
	return secrets
}

// refuseResults makes the stream reject results, as with a full disk, until the returned function is called.
func (r *rig) refuseResults(ctx context.Context) (restore func() error, err error) {
	stream, err := r.bus.JetStream().Stream(ctx, string(event.StreamResults))
	if err != nil {
		return nil, err
	}
	if err := stream.Purge(ctx); err != nil {
		return nil, err
	}
	was := stream.CachedInfo().Config
	full := was
	full.MaxBytes, full.Discard = 1, jetstream.DiscardNew
	if _, err := r.bus.JetStream().UpdateStream(ctx, full); err != nil {
		return nil, err
	}
	return func() error {
		_, err := r.bus.JetStream().UpdateStream(ctx, was)
		return err
	}, nil
}

// expireWait is an ack wait that has ended when the server applies it, 100 ms after a change.
const expireWait = 50 * time.Millisecond

// expire makes the bus deliver unsettled commands again now, like after the ack wait. A server that is too busy delivers them after the
// ack wait.
func (r *rig) expire(ctx context.Context) error {
	short := r.spec
	short.AckWait = expireWait
	if err := r.bus.EnsureConsumer(ctx, short); err != nil {
		return err
	}
	if err := pause(ctx, 3*expireWait); err != nil {
		return err
	}
	return r.bus.EnsureConsumer(ctx, r.spec)
}

// remove removes messages from the stream of commands, unless they are acknowledged meanwhile.
func (r *rig) remove(ctx context.Context, messages []uint64) error {
	stream, err := r.bus.JetStream().Stream(ctx, string(event.StreamCommands))
	if err != nil {
		return err
	}
	for _, seq := range messages {
		if err := stream.DeleteMsg(ctx, seq); err != nil {
			if gone, lookErr := r.gone(ctx, seq); !gone {
				return fmt.Errorf("remove message %d: %w", seq, errors.Join(err, lookErr))
			}
		}
	}
	return nil
}

// gone reports whether a message is not in the stream of commands any more.
func (r *rig) gone(ctx context.Context, seq uint64) (bool, error) {
	stream, err := r.bus.JetStream().Stream(ctx, string(event.StreamCommands))
	if err != nil {
		return false, err
	}
	if _, err = stream.GetMsg(ctx, seq); errors.Is(err, jetstream.ErrMsgNotFound) {
		return true, nil
	}
	return false, err
}

// stageKeys returns the keys in the bucket of the stage memory.
func (r *rig) stageKeys(ctx context.Context) ([]string, error) {
	bucket, err := r.bus.JetStream().KeyValue(ctx, event.StageBucket)
	if err != nil {
		return nil, err
	}
	keys, err := bucket.Keys(ctx)
	if errors.Is(err, jetstream.ErrNoKeysFound) {
		return nil, nil
	}
	return keys, err
}

// purge removes all unsettled commands.
func (r *rig) purge(ctx context.Context) error {
	stream, err := r.bus.JetStream().Stream(ctx, string(event.StreamCommands))
	if err != nil {
		return err
	}
	return stream.Purge(ctx)
}

// claims contains the broker's credentials by operation.
type claims struct {
	mu      sync.Mutex
	byOp    map[string]map[string]json.RawMessage
	secret  map[string]string
	claimed int
}

func newClaims() *claims {
	return &claims{byOp: map[string]map[string]json.RawMessage{}, secret: map[string]string{}}
}

// minSecret is the minimum length of a secret. Shorter texts occur in other words by chance.
const minSecret = 12

// add makes credentials claimable for an operation, and their texts secrets. Addresses are not secrets.
func (c *claims) add(operation, name string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var decoded any
	if err := json.Unmarshal(raw, &decoded); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byOp[operation] == nil {
		c.byOp[operation] = map[string]json.RawMessage{}
	}
	c.byOp[operation][name] = raw
	for _, text := range texts(decoded, nil) {
		if !strings.Contains(text, "://") {
			c.note(text, "a part of the credentials "+name)
		}
	}
	return nil
}

// keep adds a text to the secrets.
func (c *claims) keep(text, what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(text, what)
}

// note is keep with the lock held. It also adds the JSON form of a text with several lines.
func (c *claims) note(text, what string) {
	if len(text) < minSecret {
		return
	}
	c.secret[text] = what
	if quoted, err := json.Marshal(text); err == nil {
		c.secret[string(quoted[1:len(quoted)-1])] = what
	}
}

func texts(v any, into []string) []string {
	switch v := v.(type) {
	case string:
		into = append(into, v)
	case []any:
		for _, e := range v {
			into = texts(e, into)
		}
	case map[string]any:
		for _, e := range v {
			into = texts(e, into)
		}
	}
	return into
}

func (c *claims) secrets() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.secret)
}

// answerClaims answers claims like the broker.
func (r *rig) answerClaims() (stop func(), err error) {
	return r.bus.Answer(event.AskCredentialsAs("*"), "broker", func(_ context.Context, raw []byte) (any, error) {
		var request event.CredentialsRequest
		if err := json.Unmarshal(raw, &request); err != nil {
			return nil, errors.New("the question is not readable")
		}
		r.claims.mu.Lock()
		defer r.claims.mu.Unlock()
		value, ok := r.claims.byOp[request.OperationID][request.Name]
		if !ok {
			return nil, fmt.Errorf("operation %.50q has no credentials %.50q", request.OperationID, request.Name)
		}
		r.claims.claimed++
		return event.CredentialsAnswer{Credentials: value}, nil
	})
}

// answerKept stores values of the worker like the broker.
func (r *rig) answerKept() (stop func(), err error) {
	var mu sync.Mutex
	kept := map[string]json.RawMessage{} // by instance
	stopKeep, err := r.bus.Answer(event.AskKeepAs("*"), "broker", func(_ context.Context, raw []byte) (any, error) {
		var request event.KeepRequest
		if err := json.Unmarshal(raw, &request); err != nil || len(request.Value) == 0 {
			return nil, errors.New("the question is not readable")
		}
		mu.Lock()
		defer mu.Unlock()
		kept[request.InstanceID] = request.Value
		return event.KeepAnswer{}, nil
	})
	if err != nil {
		return nil, err
	}
	stopKept, err := r.bus.Answer(event.AskKeptAs("*"), "broker", func(_ context.Context, raw []byte) (any, error) {
		var request event.KeptRequest
		if err := json.Unmarshal(raw, &request); err != nil {
			return nil, errors.New("the question is not readable")
		}
		mu.Lock()
		defer mu.Unlock()
		return event.KeptAnswer{Value: kept[request.InstanceID]}, nil
	})
	if err != nil {
		stopKeep()
		return nil, err
	}
	return func() { stopKeep(); stopKept() }, nil
}

// states contains the outdated commands, for the orchestrator's answers. All other commands are current.
type states struct {
	mu       sync.Mutex
	outdated map[event.CommandRef]bool
	// refused lists the questions that could not be answered, with the reasons.
	refused []string
	// extensions lists the requests for more time that were refused, with the reasons.
	extensions []string
}

// end makes commands outdated.
func (s *states) end(refs ...event.CommandRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ref := range refs {
		s.outdated[ref] = true
	}
}

// refusals returns the questions that could not be answered since its last call.
func (s *states) refusals() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	refused := s.refused
	s.refused = nil
	return refused
}

// answerExtend answers like the orchestrator, without a budget.
func (r *rig) answerExtend() (stop func(), err error) {
	return r.bus.Answer(event.AskExtendAs(r.cfg.Worker), "orchestrator", func(_ context.Context, raw []byte) (any, error) {
		var request event.ExtendRequest
		err := json.Unmarshal(raw, &request)
		if err == nil {
			err = request.Validate()
		}
		if err == nil {
			var limit time.Time
			if limit, err = r.wire.extend(request, time.Now()); err == nil {
				return event.ExtendAnswer{ExecuteBefore: limit}, nil
			}
		}
		r.states.mu.Lock()
		defer r.states.mu.Unlock()
		r.states.extensions = append(r.states.extensions, fmt.Sprintf("%.200q: %v", raw, err))
		return nil, err
	})
}

// answerCurrent answers like the orchestrator.
func (r *rig) answerCurrent() (stop func(), err error) {
	return r.bus.Answer(event.AskCurrentAs(r.cfg.Worker), "orchestrator", func(_ context.Context, raw []byte) (any, error) {
		var request event.CurrentRequest
		err := json.Unmarshal(raw, &request)
		if err == nil {
			err = request.Validate()
		}
		r.states.mu.Lock()
		defer r.states.mu.Unlock()
		if err != nil {
			r.states.refused = append(r.states.refused, fmt.Sprintf("%.200q: %v", raw, err))
			return nil, err
		}
		answer := event.CurrentAnswer{Current: []event.CommandRef{}}
		for _, ref := range request.Commands {
			if !r.states.outdated[ref] {
				answer.Current = append(answer.Current, ref)
			}
		}
		return answer, nil
	})
}

// forgetPulls waits until the server has dropped the pulls of a worker that is cut off. A command that is sent earlier may go to one of
// them, and then comes again only after the ack wait.
func (r *rig) forgetPulls(ctx context.Context) error {
	consumer, err := r.bus.JetStream().Consumer(ctx, string(event.StreamCommands), r.cfg.Worker)
	if err != nil {
		return err
	}
	for {
		info, err := consumer.Info(ctx)
		if err != nil {
			return err
		}
		if info.NumWaiting == 0 {
			return nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%d pulls of a worker that is cut off are still there: %w", info.NumWaiting, err)
		}
	}
}

// takeFirst takes commands from the worker's consumer and returns them, like a worker that ends before it acknowledges them. The worker
// must not be connected.
func (r *rig) takeFirst(ctx context.Context, n int) error {
	consumer, err := r.bus.JetStream().Consumer(ctx, string(event.StreamCommands), r.cfg.Worker)
	if err != nil {
		return err
	}
	batch, err := consumer.Fetch(n, jetstream.FetchContext(ctx))
	if err != nil {
		return err
	}
	var taken []jetstream.Msg
	for m := range batch.Messages() {
		taken = append(taken, m)
	}
	if len(taken) < n {
		return fmt.Errorf("%d of %d commands are there: %w", len(taken), n, cmp.Or(batch.Error(), ctx.Err()))
	}
	for _, m := range taken {
		if err := m.Nak(); err != nil {
			return err
		}
	}
	return nil
}
