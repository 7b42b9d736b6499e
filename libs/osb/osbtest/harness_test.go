package osbtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbtest"
)

// harness serves a fake broker and implements all hooks.
type harness struct {
	*fake
	handler atomic.Pointer[http.Handler]
	options []osb.Option
}

// lockedWriter lets the handler's logger and the fake share the log.
type lockedWriter struct{ f *fake }

func (w lockedWriter) Write(p []byte) (int, error) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	return w.f.log.Write(p)
}

var _ io.Writer = lockedWriter{}

func newHarness(f *fake, options ...osb.Option) *harness {
	h := &harness{fake: f, options: append([]osb.Option{
		osb.WithAuth(osb.AnyOf(osb.BasicAuth("test", map[string]string{"u": "p"}))),
		osb.WithLogger(slog.New(slog.NewTextHandler(lockedWriter{f}, nil))),
	}, options...)}
	h.restart()
	return h
}

func (h *harness) restart() {
	handler := osb.NewHandler(h.fake, h.options...)
	h.handler.Store(&handler)
}

func (h *harness) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	(*h.handler.Load()).ServeHTTP(w, r)
}

func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// flag sets a switch of the fake until the returned function is called.
func (h *harness) flag(flag *bool) func(context.Context) (func(), error) {
	put := func(value bool) {
		defer h.lock()()
		*flag = value
	}
	return func(context.Context) (func(), error) {
		put(true)
		return func() { put(false) }, nil
	}
}

func (h *harness) instance(id string, read func(i *instance)) error {
	defer h.lock()()
	if i := h.instances[id]; i != nil {
		read(i)
	}
	return nil
}

func (h *harness) config(url string) osbtest.Config {
	return osbtest.Config{
		BaseURL: url, User: "u", Password: "p", BadTokens: map[string]string{"expired": "e30.e30.e30"}, Rounds: 4,
		OperationTimeout: 5 * time.Second, PollEvery: time.Millisecond, Secrets: []string{"secret-canary"}, Groups: "GCPLFDOUB",
		Parameters: func(string) map[string]any {
			return map[string]any{"name": "n", "size": 3, "list": []any{1, map[string]any{"a": 1, "b": 2}}}
		},
		Context: func(string) map[string]any { return map[string]any{"account_id": "acc", "platform": "cloudfoundry"} },
		Fixtures: osbtest.Fixtures{
			ServiceID: "s1", PlanA: "pa", PlanB: "pb", PlanFixed: "pc", PlanUnbindable: "pn", PlanMaintained: "pm", PlanOptional: "pb",
			OtherPlan: "px", ChangedParameters: map[string]any{"size": 4}, InvalidParameters: map[string]any{"name": "n", "size": "big"},
			InvalidPointer: "/size", AccountMembers: []string{"account_id"}, RequiredMembers: []string{"account_id"},
			DisplayContext:  map[string]any{"instance_name": "pretty"},
			RejectedContext: map[string]any{"account_id": "rejected"}, LongestOperation: time.Hour, Updates: true, Bindings: true,
			RejectedBindingParameters: map[string]any{"ttl": -1}, ChangedBindingParameters: map[string]any{"size": 7},
			PlanBindsAtOnce: "pa", PlanBindsLater: plansLater, PlanNeedsApp: planApp, BindingLimit: bindingLimit, Rotation: true,
			PlanNotRotatable: "pb",
		},
		Hooks: h.hooks(),
	}
}

func (h *harness) hooks() osbtest.Hooks {
	return osbtest.Hooks{
		Hold: h.flag(&h.held), Retry: h.flag(&h.held), Fail: h.flag(&h.failing), FailDeprovision: h.flag(&h.failingDeprovision),
		Exhaust: h.flag(&h.exhausted), Outage: h.flag(&h.outage),
		Counts: func(_ context.Context, id string) (c osbtest.Counts, err error) {
			err = h.instance(id, func(i *instance) { c = osbtest.Counts{Operations: len(i.ops), Requests: i.requests} })
			return c, err
		},
		Resources: func(_ context.Context, id string) (n int, err error) {
			err = h.instance(id, func(i *instance) { n = i.resources })
			return n, err
		},
		Restart: func(context.Context) error {
			h.restart()
			if h.is("C10") {
				h.setCatalog(fakeCatalog("after a restart"))
			}
			return nil
		},
		ChangeCatalog: func(context.Context) (func(), error) {
			h.setCatalog(fakeCatalog("changed"))
			h.restart()
			return func() { h.setCatalog(fakeCatalog("plan A")) }, nil
		},
		RaiseMaintenance: func(context.Context) (func(), error) {
			raised := fakeCatalog("plan A")
			raised.Services[0].Plans[4].MaintenanceInfo.Version = "1.3.0"
			h.setCatalog(raised)
			h.restart()
			return func() { h.setCatalog(fakeCatalog("plan A")) }, nil
		},
		StartBroken: func(_ context.Context, fault osbtest.CatalogFault) (string, error) {
			c := fakeCatalog("plan A")
			if fault == osbtest.DuplicatePlanID {
				c.Services[0].Plans[1].ID = "pa"
			} else {
				c.Services[0].Plans[0].Schemas.ServiceInstance.Create.Parameters = json.RawMessage(`{}`)
			}
			if h.is("C16") {
				return "pa", nil
			}
			return "pa", c.Validate()
		},
		Panic: func(context.Context) error { h.mu.Lock(); defer h.mu.Unlock(); h.panics = true; return nil },
		Audit: func(_ context.Context, id string) (got osbtest.Identity, err error) {
			err = h.instance(id, func(i *instance) { got = osbtest.Identity(i.identity) })
			return got, err
		},
		Logs:  func(context.Context) (string, error) { h.mu.Lock(); defer h.mu.Unlock(); return h.log.String(), nil },
		Purge: func(_ context.Context, id string) error { return h.instance(id, func(i *instance) { i.purged = true }) },
		Expire: func(_ context.Context, id string) error {
			return h.instance(id, func(i *instance) {
				if !h.is("L17") {
					i.newest().state, i.state = osb.StateFailed, "failed"
				}
			})
		},
		KillOrchestrator: func(context.Context) error {
			if h.is("L20") {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.instances = map[string]*instance{}
			}
			return nil
		},
		StepRuns: func(_ context.Context, id string) (runs map[string]int, err error) {
			err = h.instance(id, func(i *instance) { runs = i.runs })
			return runs, err
		},
		NotCompleted: func(_ context.Context, id string) (steps []string, err error) {
			err = h.instance(id, func(i *instance) { steps = i.undone })
			return steps, err
		},
		ExpireBinding: func(_ context.Context, id, binding string) error {
			return h.instance(id, func(i *instance) { i.bindings[binding].expired = true })
		},
		CleanBindings: func(context.Context) error {
			defer h.lock()()
			for _, i := range h.instances {
				maps.DeleteFunc(i.bindings, func(_ string, b *bound) bool { return b.expired && !h.is("B26") })
			}
			return nil
		},
		Sweep: func(context.Context) error {
			defer h.lock()()
			if h.exhausted {
				return errors.New("it is still unavailable")
			}
			for _, i := range h.instances {
				i.undone = nil
			}
			return nil
		},
	}
}

func (h *harness) setCatalog(c *osb.Catalog) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.catalog = c
}
