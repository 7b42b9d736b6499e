//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/test/internal/installation"
)

const (
	// stolen is the worker whose password the hostile client has.
	stolen = "edp"
	// oneAct is the pause between two acts of a hostile client.
	oneAct = time.Second
)

// hostile are clients that harm the bus as far as it lets them: some without valid credentials, and one with the stolen password of a worker.
type hostile struct {
	rnd *rand.Rand

	mu       sync.Mutex
	acts     map[string]int // by what was done
	problems []string
}

// startHostile starts the clients. stop ends them and waits.
func (w *world) startHostile() (h *hostile, stop func()) {
	h = &hostile{rnd: random(w.rnd.Uint64()), acts: map[string]int{}}
	subject := event.ResultSubject(stolen, "")
	w.Foreign = func(header nats.Header) bool { return strings.HasPrefix(header.Get(bus.HeaderDeadSubject), subject) }
	ctx, cancel := context.WithCancel(w.T.Context())
	password, addr := w.PasswordOf(event.WorkerUserName(stolen)), w.Addr[installation.ToNATS]
	var running sync.WaitGroup
	running.Go(func() { h.withoutCredentials(ctx, addr) })
	running.Go(func() { h.withStolenPassword(ctx, addr, password) })
	return h, func() {
		cancel()
		running.Wait()
	}
}

func (h *hostile) did(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acts[what]++
}

// hostileActs are what the clients do at least once in a minute.
var hostileActs = []string{"connections refused", "connections with garbage", "commands taken", "unreadable results", "dead letters", "forged results", "acts refused"}

// end fails the test if the clients did not do what they are for.
func (h *hostile) end(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, what := range hostileActs {
		if h.acts[what] == 0 {
			t.Errorf("hostile clients: no %s", what)
		}
	}
}

// report fails the test if a client could do what it must not.
func (h *hostile) report(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, problem := range h.problems {
		t.Error(problem)
	}
	h.problems = nil
}

func (h *hostile) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.problems = append(h.problems, fmt.Sprintf(format, args...))
}

// withoutCredentials connects without a password, with a wrong one, and with bytes that are not the protocol.
func (h *hostile) withoutCredentials(ctx context.Context, addr string) {
	var held []net.Conn
	defer func() {
		for _, c := range held {
			_ = c.Close()
		}
	}()
	for ; ctx.Err() == nil; installation.Wait(ctx, oneAct) {
		for _, options := range [][]nats.Option{nil, {nats.UserInfo(event.UserOrchestrator, "wrong")}, {nats.UserInfo("$SYS", "")}} {
			nc, err := nats.Connect("nats://"+addr, append(options, nats.Timeout(2*time.Second))...)
			switch {
			case err == nil:
				h.note("the server accepts the user %q without its password", nc.Opts.User)
				nc.Close()
			case errors.Is(err, nats.ErrAuthorization):
				h.did("connections refused")
			}
		}
		c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", addr)
		if err != nil {
			continue // the server is down
		}
		for _, text := range []string{"CONNECT {", "PUB keb.command.edp.x 99999999\r\n", strings.Repeat("\x00\xff", 32<<10)} {
			_, _ = io.WriteString(c, text) // the server may close the connection
		}
		h.did("connections with garbage")
		if held = append(held, c); len(held) > 50 { // they stay open and silent
			_ = held[0].Close()
			held = held[1:]
		}
	}
}

// withStolenPassword sends forged and unreadable results, takes commands without executing them, and tries everything that
// a worker must not do.
func (h *hostile) withStolenPassword(ctx context.Context, addr, password string) {
	user := event.WorkerUserName(stolen)
	nc, err := nats.Connect("nats://"+addr, nats.UserInfo(user, password), nats.CustomInboxPrefix(event.InboxPrefix(user)), nats.MaxReconnects(-1),
		nats.ReconnectWait(oneAct), nats.RetryOnFailedConnect(true), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if errors.Is(err, nats.ErrPermissionViolation) {
				h.did("acts refused")
			}
		}))
	if err != nil {
		h.note("the stolen password does not work: %v", err)
		return
	}
	defer nc.Close()
	inbox, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		h.note("subscribe: %v", err)
		return
	}
	for n := 0; ctx.Err() == nil; n++ {
		switch n % 10 {
		case 0: // a command that comes again only after its acknowledgement is overdue
			_ = nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+string(event.StreamCommands)+"."+stolen, inbox.Subject, []byte(`{"batch": 1, "expires": 900000000}`))
			if m, err := inbox.NextMsg(oneAct); err == nil && strings.HasPrefix(m.Subject, "keb.command.") {
				h.did("commands taken")
			}
		case 1, 2: // unreadable
			_ = nc.Publish(event.ResultSubject(stolen, "x"), []byte(strings.Repeat("{", 1+h.rnd.IntN(1<<16))))
			h.did("unreadable results")
		case 3: // a dead letter
			m := nats.NewMsg(event.DeadSubject(event.StreamCommands))
			m.Header.Set(bus.HeaderDeadSubject, event.ResultSubject(stolen, "x"))
			_ = nc.PublishMsg(m)
			h.did("dead letters")
		case 4, 5, 6: // readable, of operations that do not exist
			if m, err := forged(h.rnd); err != nil {
				h.note("forge a result: %v", err)
			} else {
				_ = nc.PublishMsg(m)
				h.did("forged results")
			}
		default:
			for _, stream := range []event.Stream{event.StreamCommands, event.StreamResults, event.StreamRequests, event.StreamFacts} {
				_ = nc.Publish("$JS.API.STREAM.DELETE."+string(stream), nil)
				_ = nc.Publish("$JS.API.STREAM.PURGE."+string(stream), nil)
			}
			_ = nc.Publish(event.CommandSubject("avs", "x"), []byte("{}"))
			_ = nc.Publish(event.ResultSubject("avs", "x"), []byte("{}"))
			_ = nc.Publish(event.CancelSubject("avs"), []byte("{}"))
			_ = nc.Publish(event.RequestSubject(event.Provision), []byte("{}"))
		}
		installation.Wait(ctx, oneAct)
	}
}

// forged returns a result that claims to be of the stolen worker, about an operation that does not exist.
func forged(rnd *rand.Rand) (*nats.Msg, error) {
	id, now := uuid.NewString(), time.Now()
	r := event.Result{
		OperationID: id, Cursor: 1 + rnd.Int64N(30), Stage: "x", Step: "x", Worker: event.Worker{Name: stolen}, StartedAt: now, FinishedAt: now,
	}
	e, err := bus.New(event.TypeStepSucceeded, event.DispatchID(id, r.Cursor, 1), event.WorkerSource(stolen), id, now, event.StepSucceeded{Result: r})
	if err != nil {
		return nil, err
	}
	header, data, err := bus.Encode(&e)
	return &nats.Msg{Subject: event.ResultSubject(stolen, "x"), Header: header, Data: data}, err
}
