//go:build linux

package history_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/test/history"
	"github.com/kyma-project/keb/test/internal/harness"
	"github.com/kyma-project/keb/test/internal/installation"
)

const (
	clients = 50
	// slots are places for one instance, each of which two clients share.
	slots = clients / 2
	// again is the pause before a client polls again, or repeats an unknown request for the first time.
	again = 500 * time.Millisecond
)

// recorder records the invocations.
type recorder struct {
	start   time.Time
	client  *osbclient.Client
	mu      sync.Mutex
	records []*history.Record
}

// invoke records a call. The call fills in the successful answer.
func (c *recorder) invoke(r *history.Record, call func() error) *history.Record {
	r.Call = int64(time.Since(c.start))
	err := call()
	r.Return = int64(time.Since(c.start))
	e, isAnswer := errors.AsType[*osb.Error](err)
	switch {
	case err == nil:
		r.Outcome = history.OK
	case !isAnswer:
		r.Outcome = history.Unknown
	case e.Status >= 500 || e.Status == http.StatusRequestTimeout:
		r.Outcome, r.Status = history.Unknown, e.Status
	default:
		r.Outcome, r.Status = history.Failed, e.Status
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records = append(c.records, r)
	return r
}

// slot has the current instance of two clients, and all earlier ones.
type slot struct {
	mu     sync.Mutex
	order  *harness.Order
	value  string
	exists bool
	all    []*harness.Order
}

// renew replaces an instance that was removed.
func (s *slot) renew(old *harness.Order, value int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.order != old {
		return
	}
	s.order, s.value, s.exists = harness.Azure(), strconv.Itoa(value), false
	s.order.Parameters["autoScalerMax"] = value
	s.all = append(s.all, s.order)
}

func (s *slot) current() (order harness.Order, pointer *harness.Order, value string, exists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.order, s.order, s.value, s.exists
}

// client changes the instance of its slot.
type client struct {
	*recorder
	n    int
	rnd  *rand.Rand
	slot *slot
}

// value returns a random value of the parameter.
func value(rnd *rand.Rand) int { return 11 + rnd.IntN(69) }

// run invokes one request after the other until more ends, and completes the last one.
func (c *client) run(ctx, more context.Context) {
	for more.Err() == nil {
		c.act(ctx)
		installation.Wait(more, time.Duration(100+c.rnd.Int64N(400))*time.Millisecond)
	}
}

func (c *client) act(ctx context.Context) {
	order, pointer, first, exists := c.slot.current()
	id := order.InstanceID
	n := c.rnd.IntN(100)
	switch {
	case !exists && n < 10:
		c.get(ctx, id)
	case !exists || n < 4:
		if n%4 == 3 { // another order under the same id
			first = "9"
		}
		c.provision(ctx, &order, first)
		if c.get(ctx, id).Status == http.StatusOK {
			c.slot.mu.Lock()
			c.slot.exists = c.slot.exists || c.slot.order == pointer
			c.slot.mu.Unlock()
		}
	case n < 35:
		c.change(ctx, history.Update, id, strconv.Itoa(value(c.rnd)), func(r *history.Record) (*osbclient.Answer, error) {
			number, err := strconv.Atoi(r.Value)
			if err != nil {
				return nil, err
			}
			return c.client.Update(ctx, id, osbclient.Change{ServiceID: harness.ServiceID, Parameters: map[string]any{"autoScalerMax": number}})
		})
	case n < 60:
		c.get(ctx, id)
	case n < 82:
		c.bind(ctx, id)
	default:
		end := c.change(ctx, history.Deprovision, id, "", func(*history.Record) (*osbclient.Answer, error) {
			return c.client.Deprovision(ctx, id, harness.ServiceID, harness.PlanAzure)
		})
		if end != nil && (end.State == history.Succeeded || end.Status == http.StatusGone) {
			c.get(ctx, id)
			c.slot.renew(pointer, value(c.rnd))
		}
	}
}

func (c *client) provision(ctx context.Context, order *harness.Order, first string) {
	c.change(ctx, history.Provision, order.InstanceID, first, func(r *history.Record) (*osbclient.Answer, error) {
		body := order.Body()
		if r.Value == "9" {
			body.Parameters = map[string]any{"name": "other", "region": "westeurope", "autoScalerMax": 9}
		}
		return c.client.Provision(ctx, order.InstanceID, body)
	})
}

// change repeats a request while its outcome is unknown, and polls the end of its operation. It returns the last invocation, or nil if the
// outcome stayed unknown.
func (c *client) change(
	ctx context.Context, kind history.Kind, id, value string, call func(*history.Record) (*osbclient.Answer, error),
) (last *history.Record) {
	pause := again
	for range 6 {
		r := &history.Record{Kind: kind, Client: c.n, Instance: id, Value: value}
		c.invoke(r, func() error {
			answer, err := call(r)
			if err != nil {
				return err
			}
			r.Status, r.Operation = http.StatusOK, answer.Operation
			if answer.Async {
				r.Status = http.StatusAccepted
			}
			return nil
		})
		if r.Status == http.StatusAccepted {
			return c.follow(ctx, id, r.Operation)
		}
		if r.Outcome != history.Unknown || ctx.Err() != nil {
			return r
		}
		installation.Wait(ctx, pause)
		pause *= 2
	}
	return nil
}

// follow polls an operation until it has ended.
func (c *client) follow(ctx context.Context, id, operation string) *history.Record {
	for ctx.Err() == nil {
		r := c.poll(ctx, id, operation)
		if r.Outcome == history.Failed || r.State == history.Succeeded || r.State == history.HasFailed {
			return r
		}
		installation.Wait(ctx, again)
	}
	return nil
}

func (c *client) poll(ctx context.Context, id, operation string) *history.Record {
	r := &history.Record{Kind: history.Poll, Client: c.n, Instance: id, Operation: operation}
	return c.invoke(r, func() error {
		last, err := c.client.LastOperation(ctx, id, operation)
		if err == nil {
			r.Status, r.State = http.StatusOK, string(last.State)
		}
		return err
	})
}

func (c *client) get(ctx context.Context, id string) *history.Record {
	r := &history.Record{Kind: history.Get, Client: c.n, Instance: id}
	return c.invoke(r, func() error {
		i, err := c.client.GetInstance(ctx, id)
		if err != nil {
			return err
		}
		var parameters struct{ AutoScalerMax json.Number }
		if err := json.Unmarshal(i.Parameters, &parameters); err != nil {
			return fmt.Errorf("decode parameters: %w", err)
		}
		r.Status, r.Value = http.StatusOK, parameters.AutoScalerMax.String()
		return nil
	})
}

// bind creates, reads and usually removes a binding.
func (c *client) bind(ctx context.Context, id string) {
	binding := uuid.NewString()
	made := c.bound(history.Bind, id, binding, func() (*osbclient.Binding, error) {
		return c.client.Bind(ctx, id, binding, osbclient.Bind{ServiceID: harness.ServiceID, PlanID: harness.PlanAzure})
	})
	if made.Outcome == history.Failed {
		return
	}
	c.getBinding(ctx, id, binding)
	if c.rnd.IntN(4) == 0 {
		installation.Wait(ctx, again)
		c.getBinding(ctx, id, binding)
		return
	}
	c.bound(history.Unbind, id, binding, func() (*osbclient.Binding, error) {
		_, err := c.client.Unbind(ctx, id, binding, harness.ServiceID, harness.PlanAzure)
		return &osbclient.Binding{Existed: true}, err
	})
	c.getBinding(ctx, id, binding)
}

func (c *client) getBinding(ctx context.Context, id, binding string) {
	c.bound(history.GetBinding, id, binding, func() (*osbclient.Binding, error) { return c.client.GetBinding(ctx, id, binding) })
}

// bound records a request about a binding, with a digest of its credentials.
func (c *client) bound(kind history.Kind, id, binding string, call func() (*osbclient.Binding, error)) *history.Record {
	r := &history.Record{Kind: kind, Client: c.n, Instance: id, Binding: binding}
	return c.invoke(r, func() error {
		b, err := call()
		if err != nil {
			return err
		}
		if r.Status = http.StatusCreated; b.Existed {
			r.Status = http.StatusOK
		}
		if len(b.Credentials) > 0 {
			digest := sha256.Sum256(b.Credentials)
			r.Value = hex.EncodeToString(digest[:6])
		}
		return nil
	})
}
