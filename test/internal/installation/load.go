//go:build linux

package installation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
	"github.com/kyma-project/keb/test/internal/harness"
)

const (
	// Customers is the number of platform users that order at the same time; each waits for the end of its operation.
	Customers = 14
	// again is the pause before a platform repeats a rejected request or polls again.
	again = 300 * time.Millisecond
)

// alternate sends each request to the next broker, like a load balancer without retries.
type alternate struct {
	brokers []string
	next    atomic.Int64
	inner   http.RoundTripper
}

func (a *alternate) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = a.brokers[int(a.next.Add(1))%len(a.brokers)]
	return a.inner.RoundTrip(r)
}

// accepted is an operation whose id the platform received.
type accepted struct {
	id, instance, kind string
	state              osb.State
	took               time.Duration
}

// Load contains the customers and their results since the last reset.
type Load struct {
	client    *osbclient.Client
	customers []*customer
	waiting   atomic.Int64 // accepted operations that have not ended

	mu     sync.Mutex
	all    []*accepted
	codes  map[string]int
	lost   []string
	wrong  []string
	binds  int
	builds map[string]int // successful provisionings and unsuspensions by plan
}

// customer orders one runtime after the other, and changes each.
type customer struct {
	load  *Load
	rnd   *rand.Rand
	trial bool
	order *harness.Order
	// the platform's view of the runtime
	exists, suspended bool
	machine           int
	// gone are the runtimes that were removed since the last check.
	gone []*harness.Order
}

// machines are the machine types of updates: the first update sets the first one, and the order has the second.
var machines = []string{"Standard_D8_v3", "Standard_D4_v3"}

// Client returns a client of the OSB API that sends each request to the next broker.
func (w *World) Client(transport http.RoundTripper) *osbclient.Client {
	w.T.Helper()
	client, err := osbclient.New(osbclient.Config{
		BaseURL: "http://" + w.brokers[0] + "/oauth/cf-eu10", User: "keb", Password: w.password, Timeout: 20 * time.Second,
	}, &http.Client{Transport: &alternate{brokers: w.brokers, inner: transport}})
	require.NoError(w.T, err)
	return client
}

// NewLoad returns the load of an installation; nothing runs yet.
func NewLoad(w *World, rnd *rand.Rand) *Load {
	l := &Load{codes: map[string]int{}, builds: map[string]int{}}
	l.client = w.Client(&http.Transport{MaxIdleConnsPerHost: 2 * Customers})
	for i := range Customers {
		l.customers = append(l.customers, &customer{load: l, trial: i%4 == 3, rnd: rand.New(rand.NewPCG(rnd.Uint64(), uint64(i)))})
	}
	return l
}

// run lets the customers order until more ends, and waits for their last operations. ctx ends the waiting.
func (l *Load) run(ctx, more context.Context) {
	var all sync.WaitGroup
	for _, c := range l.customers {
		all.Go(func() {
			for more.Err() == nil && ctx.Err() == nil {
				c.act(ctx)
				Wait(more, time.Duration(c.rnd.Int64N(int64(400*time.Millisecond))))
			}
		})
	}
	all.Wait()
}

// Wait waits for a time, or until the context ends.
func Wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// act performs one action.
func (c *customer) act(ctx context.Context) {
	switch {
	case !c.exists:
		c.provision(ctx)
	case c.suspended:
		if c.order != nil && c.rnd.IntN(4) == 0 {
			c.deprovision(ctx)
			return
		}
		c.activate(ctx, true)
	case c.trial && c.rnd.IntN(3) > 0:
		c.activate(ctx, false)
	case !c.trial && c.rnd.IntN(3) == 0:
		c.update(ctx)
	case !c.trial && c.rnd.IntN(3) == 0:
		c.bind(ctx)
	default:
		c.deprovision(ctx)
	}
}

func (c *customer) provision(ctx context.Context) {
	if c.order == nil {
		if c.order = harness.Azure(); c.trial {
			c.order = harness.Trial()
		}
	}
	state := c.change(ctx, "provision", func() (*osbclient.Answer, error) {
		return c.load.client.Provision(ctx, c.order.InstanceID, c.order.Body())
	})
	if state == osb.StateSucceeded {
		c.exists, c.suspended, c.machine = true, false, 0
		c.load.built(c.plan())
		c.read(ctx)
	}
}

// read compares the broker's answer about the runtime with what the customer knows.
func (c *customer) read(ctx context.Context) {
	c.load.expect(ctx, "get instance "+c.order.InstanceID, c.exists, func() (problem string, err error) {
		i, err := c.load.client.GetInstance(ctx, c.order.InstanceID)
		if err != nil || c.trial {
			return "", err
		}
		var got struct{ MachineType string }
		if err := json.Unmarshal(i.Parameters, &got); err != nil {
			return "", fmt.Errorf("decode parameters: %w", err)
		}
		if want := machines[(c.machine+1)%2]; got.MachineType != want {
			problem = fmt.Sprintf("machineType is %q, want %q", got.MachineType, want)
		}
		return problem, nil
	})
}

func (c *customer) plan() string {
	if c.trial {
		return "trial"
	}
	return "azure"
}

func (c *customer) update(ctx context.Context) {
	if c.changeOf(ctx, "update", osbclient.Change{Parameters: map[string]any{"machineType": machines[c.machine%2]}}) == osb.StateSucceeded {
		c.machine++
		c.read(ctx)
	}
}

func (c *customer) activate(ctx context.Context, yes bool) {
	kind := "suspend"
	if yes {
		kind = "unsuspend"
	}
	if c.changeOf(ctx, kind, osbclient.Change{Context: map[string]any{"active": yes}}) != osb.StateSucceeded {
		return
	}
	if c.suspended = !yes; yes {
		c.load.built(c.plan())
	}
}

func (c *customer) changeOf(ctx context.Context, kind string, change osbclient.Change) osb.State {
	change.ServiceID = harness.ServiceID
	return c.change(ctx, kind, func() (*osbclient.Answer, error) { return c.load.client.Update(ctx, c.order.InstanceID, change) })
}

func (c *customer) deprovision(ctx context.Context) {
	state := c.change(ctx, "deprovision", func() (*osbclient.Answer, error) {
		return c.load.client.Deprovision(ctx, c.order.InstanceID, harness.ServiceID, c.order.PlanID)
	})
	if state == osb.StateSucceeded {
		c.gone = append(c.gone, c.order)
		c.exists, c.suspended = false, false
		c.read(ctx)
		c.order = nil
	}
}

// bind creates and removes a binding, and reads it after both.
func (c *customer) bind(ctx context.Context) {
	id := uuid.NewString()
	exists := true
	for _, do := range []struct {
		what string
		call func() error
	}{
		{"bind", func() error {
			_, err := c.load.client.Bind(ctx, c.order.InstanceID, id, osbclient.Bind{ServiceID: harness.ServiceID, PlanID: c.order.PlanID})
			return err
		}},
		{"unbind", func() error {
			_, err := c.load.client.Unbind(ctx, c.order.InstanceID, id, harness.ServiceID, c.order.PlanID)
			if osbclient.IsGone(err) {
				return nil // the answer to an earlier try was lost
			}
			return err
		}},
	} {
		if !c.load.repeat(ctx, do.what, do.call) {
			return
		}
		c.load.expect(ctx, "get binding "+id, exists, func() (problem string, err error) {
			b, err := c.load.client.GetBinding(ctx, c.order.InstanceID, id)
			if err != nil {
				return "", err
			}
			var credentials map[string]any
			if err := json.Unmarshal(b.Credentials, &credentials); err != nil || len(credentials) == 0 {
				problem = "it has no credentials"
			}
			return problem, nil
		})
		exists = false
	}
	c.load.mu.Lock()
	c.load.binds++
	c.load.mu.Unlock()
}

// repeat repeats a call until it succeeds. It records a permanent error as wrong.
func (l *Load) repeat(ctx context.Context, what string, call func() error) bool {
	for ctx.Err() == nil {
		err := call()
		if err == nil {
			return true
		}
		status := l.refused(ctx, err)
		if status >= 400 && status < 500 && status != http.StatusUnprocessableEntity && status != http.StatusTooManyRequests && status != http.StatusRequestTimeout {
			l.note(&l.wrong, fmt.Sprintf("%s: %v", what, err))
			return false
		}
		Wait(ctx, again)
	}
	return false
}

// expect reads something until the broker answers, and records an answer as wrong that contradicts whether it exists, or has a problem.
func (l *Load) expect(ctx context.Context, what string, exists bool, read func() (problem string, err error)) {
	l.repeat(ctx, what, func() error {
		problem, err := read()
		switch {
		case !exists && osbclient.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case !exists:
			problem = "it exists after its removal"
		}
		if problem != "" {
			l.note(&l.wrong, what+": "+problem)
		}
		return nil
	})
}

// change requests a change until it is accepted, and then polls its end.
func (c *customer) change(ctx context.Context, kind string, call func() (*osbclient.Answer, error)) osb.State {
	l := c.load
	instance := c.order.InstanceID
	var answer *osbclient.Answer
	ok := l.repeat(ctx, kind, func() (err error) {
		answer, err = call()
		if kind == "deprovision" && osbclient.IsGone(err) {
			answer, err = &osbclient.Answer{}, nil // the answer to an earlier try was lost, and the operation has ended
		}
		return err
	})
	switch {
	case !ok:
		return ""
	case !answer.Async:
		return osb.StateSucceeded // already done
	}
	a := &accepted{id: answer.Operation, instance: instance, kind: kind}
	l.mu.Lock()
	l.all = append(l.all, a)
	l.mu.Unlock()
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	start := time.Now()
	state := l.follow(ctx, a)
	l.mu.Lock()
	defer l.mu.Unlock()
	a.took = time.Since(start)
	if a.state = state; state == osb.StateFailed {
		l.wrong = append(l.wrong, fmt.Sprintf("%s %s of instance %s failed", kind, a.id, instance))
	}
	return state
}

// follow polls an operation until it ends.
func (l *Load) follow(ctx context.Context, a *accepted) osb.State {
	for ctx.Err() == nil {
		last, err := l.client.LastOperation(ctx, a.instance, a.id)
		switch {
		case err == nil && last.State != osb.StateInProgress:
			return last.State
		case err == nil:
		case osbclient.IsGone(err) && a.kind == "deprovision":
			return osb.StateSucceeded
		case osbclient.IsGone(err) || osbclient.IsNotFound(err):
			l.note(&l.lost, fmt.Sprintf("%s %s of instance %s is unknown to the broker: %v", a.kind, a.id, a.instance, err))
			return ""
		default:
			l.refused(ctx, err)
		}
		Wait(ctx, again)
	}
	l.note(&l.lost, fmt.Sprintf("%s %s of instance %s has not ended", a.kind, a.id, a.instance))
	return ""
}

// refused counts a failed request and returns its status.
func (l *Load) refused(ctx context.Context, err error) int {
	if ctx.Err() != nil {
		return 0
	}
	code, status := "no answer", 0
	e, ok := errors.AsType[*osb.Error](err)
	if ok {
		status = e.Status
		code = strconv.Itoa(status)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.codes[code]++
	if e != nil && status == http.StatusServiceUnavailable && e.RetryAfter == 0 {
		l.wrong = append(l.wrong, fmt.Sprintf("503 without Retry-After: %v", err))
	}
	return status
}

func (l *Load) note(list *[]string, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*list = append(*list, text)
}

func (l *Load) built(plan string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.builds[plan]++
}

// Take returns the results since the last call of take.
func (l *Load) take() *Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := &Load{all: l.all, codes: l.codes, lost: l.lost, wrong: l.wrong, binds: l.binds, builds: l.builds}
	l.all, l.codes, l.lost, l.wrong, l.binds, l.builds = nil, map[string]int{}, nil, nil, 0, map[string]int{}
	return t
}

// refusals returns the failed requests by code.
func (l *Load) refusals() string {
	parts := make([]string, 0, len(l.codes))
	for _, code := range slices.Sorted(maps.Keys(l.codes)) {
		parts = append(parts, fmt.Sprintf("%s x%d", code, l.codes[code]))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// slowest returns the longest duration of an accepted operation.
func (l *Load) slowest() time.Duration {
	var d time.Duration
	for _, a := range l.all {
		d = max(d, a.took)
	}
	return d
}

// median returns the median duration of provisionings.
func (l *Load) median() time.Duration {
	var all []time.Duration
	for _, a := range l.all {
		if a.kind == "provision" {
			all = append(all, a.took)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// ended returns the number of accepted operations with that end.
func (l *Load) ended(state osb.State) int {
	n := 0
	for _, a := range l.all {
		if a.state == state {
			n++
		}
	}
	return n
}
