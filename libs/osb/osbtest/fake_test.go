package osbtest_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kyma-project/keb/libs/osb"
)

// fake is a broker in memory. Its operations end at the next request, unless they are held. If bug is the id of a case, the fake violates
// that case.
type fake struct {
	bug string

	mu        sync.Mutex
	catalog   *osb.Catalog
	instances map[string]*instance
	log       bytes.Buffer

	held, failing, failingDeprovision, exhausted, outage, panics bool
}

type instance struct {
	req       *osb.ProvisionRequest
	params    map[string]any
	plan      string
	state     string // provisioning, ready, failed, updating, deprovisioning, stuck, gone
	ops       []*operation
	requests  int
	resources int
	purged    bool
	identity  osb.OriginatingIdentity
	runs      map[string]int
	undone    []string
	bindings  map[string]*bound
}

type operation struct {
	id, kind, description string
	state                 osb.State
	request               json.RawMessage
	plan                  string
	params                map[string]any
	flags                 bool
}

const (
	provisioning   = "provisioning"
	updating       = "updating"
	deprovisioning = "deprovisioning"
)

func newFake(bug string) *fake {
	return &fake{bug: bug, catalog: fakeCatalog("plan A"), instances: map[string]*instance{}}
}

func fakeCatalog(description string) *osb.Catalog {
	yes, no := true, false
	plan := func(id string) osb.Plan { return osb.Plan{ID: id, Name: id, Description: "plan " + id} }
	a, b, fixed, unbindable, maintained := plan("pa"), plan("pb"), plan("pc"), plan("pn"), plan("pm")
	later, needsApp := plan(plansLater), plan(planApp)
	a.Description, a.MaximumPollingDuration, a.BindingRotatable = description, 7200, &yes
	a.Schemas = &osb.Schemas{ServiceInstance: &osb.InstanceSchemas{Create: &osb.InputSchema{
		Parameters: json.RawMessage(`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","required":["name"]}`),
	}}}
	fixed.PlanUpdateable, unbindable.Bindable = &no, &no
	maintained.MaintenanceInfo = &osb.MaintenanceInfo{Version: "1.2.3"}
	return &osb.Catalog{LastModified: time.Unix(1_700_000_000, 0), Services: []osb.Service{
		{
			ID: "s1", Name: "one", Description: "first", Bindable: true, InstancesRetrievable: true, PlanUpdateable: true,
			Requires: []string{"syslog_drain"}, Plans: []osb.Plan{a, b, fixed, unbindable, maintained, later, needsApp},
		},
		{ID: "s2", Name: "two", Description: "second", Plans: []osb.Plan{plan("px")}},
	}}
}

// planUpdateable reports whether instances of a plan of the offering can change to another plan.
func planUpdateable(s *osb.Service, p *osb.Plan) bool {
	if p.PlanUpdateable != nil {
		return *p.PlanUpdateable
	}
	return s.PlanUpdateable
}

func (f *fake) is(bugs ...string) bool { return slices.Contains(bugs, f.bug) }

// lock locks the fake, and ends completed operations.
func (f *fake) lock() func() {
	f.mu.Lock()
	if !f.held {
		for _, i := range f.instances {
			if op := i.newest(); op != nil && op.state == osb.StateInProgress {
				f.end(i, op)
			}
			f.settle(i)
		}
	}
	return f.mu.Unlock
}

func (i *instance) newest() *operation {
	if len(i.ops) == 0 {
		return nil
	}
	return i.ops[len(i.ops)-1]
}

func (f *fake) end(i *instance, op *operation) {
	op.state, op.description = osb.StateSucceeded, op.kind+" succeeded"
	fail := f.failing
	if op.kind == deprovisioning {
		fail = f.failingDeprovision
	}
	if fail {
		op.state, op.description = osb.StateFailed, op.kind+" failed"
	}
	switch {
	case op.kind == provisioning:
		i.state, i.resources = map[bool]string{false: "ready", true: "failed"}[fail], 2
	case op.kind == updating:
		i.state, op.flags = "ready", fail
		if !fail || f.is("U21") {
			i.plan, i.params = op.plan, op.params
		}
	case fail:
		i.state, op.flags = "stuck", true
		i.runs["first"]++
	default:
		if i.runs["first"] == 0 || f.is("D10") {
			i.runs["first"]++
		}
		i.runs["second"]++
		i.state, i.resources = "gone", 0
		if f.is("D09", "O01", "O02", "O03") {
			i.resources = 1
		}
		if f.exhausted && !f.is("D15") {
			i.undone = []string{"first"}
		}
	}
	if f.is("L18") {
		op.description = " "
	}
}

func (f *fake) start(i *instance, kind string, request json.RawMessage) *operation {
	op := &operation{id: rand.Text(), kind: kind, state: osb.StateInProgress, description: kind, request: request}
	i.ops, i.state = append(i.ops, op), kind
	i.requests++
	return op
}

func (f *fake) Catalog(context.Context, string) (*osb.Catalog, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.panics {
		f.panics = false
		panic("secret")
	}
	return f.catalog, nil
}

func account(raw json.RawMessage) string {
	var c struct {
		Account string `json:"account_id"`
	}
	_ = json.Unmarshal(raw, &c)
	return c.Account
}

func parameters(raw json.RawMessage) map[string]any {
	out := map[string]any{}
	_ = json.Unmarshal(raw, &out)
	return out
}

func (f *fake) checkParameters(params map[string]any, plan string, creating bool) *osb.Error {
	if _, ok := params["size"].(float64); params["size"] != nil && !ok && !f.is("P17", "U18") {
		return osb.BadRequest("/size must be a number")
	}
	if creating && plan == "pa" && params["name"] == nil {
		return osb.BadRequest("/name is missing")
	}
	return nil
}

func (f *fake) dashboard(id string) string { return "https://dashboard/?a=1&id=" + id }

func (f *fake) Provision(_ context.Context, req *osb.ProvisionRequest) (osb.ProvisionResult, error) {
	defer f.lock()()
	if f.outage {
		if f.is("O02") {
			f.order(req, parameters(req.Parameters))
		}
		return nil, map[bool]error{false: osb.Unavailable(errors.New("away")), true: errors.New("secret-canary")}[f.is("P28")]
	}
	switch acc := account(req.Context); {
	case acc == "" && !f.is("P30"):
		return nil, osb.BadRequest("context.account_id is missing")
	case acc == "rejected" && !f.is("P29"):
		return nil, osb.Unprocessable("the quota of the account is used up")
	}
	params := parameters(req.Parameters)
	if e := f.checkParameters(params, req.PlanID, !f.is("P19")); e != nil {
		return nil, e
	}
	if f.is("P19") && len(params) == 0 {
		return nil, osb.BadRequest("parameters are missing")
	}
	if !req.AcceptsIncomplete && !f.is("O06", "P02") {
		if f.is("P01") {
			f.order(req, params)
		}
		return nil, osb.AsyncRequired()
	}
	id := req.InstanceID
	if f.is("G27") {
		id, _, _ = strings.Cut(id, "/")
		req.InstanceID = id
	}
	i := f.instances[id]
	if i == nil || i.state == "gone" {
		return f.order(req, params), nil
	}
	if e := f.differs(i, req); e != nil {
		return nil, e
	}
	switch i.state {
	case provisioning:
		if f.is("P04") {
			f.order(req, params)
		}
		if f.is("P23") {
			i.requests++
		}
		return osb.Accepted{Operation: f.instances[id].newest().id, DashboardURL: f.dashboard(id)}, nil
	case "failed":
		if f.is("P26") {
			return nil, osb.Conflict("no")
		}
		return nil, osb.Conflict("provisioning failed: deprovision it first")
	case updating, deprovisioning:
		if f.is("P25", "O06") {
			return nil, osb.Conflict("busy")
		}
		return nil, osb.ConcurrencyError()
	}
	if f.is("P06") {
		return osb.Accepted{Operation: i.newest().id}, nil
	}
	return osb.Exists{DashboardURL: f.dashboard(id)}, nil
}

func (f *fake) differs(i *instance, req *osb.ProvisionRequest) error {
	equal := osb.SameJSON(i.req.Parameters, req.Parameters) || f.is("P08")
	if f.is("P05") {
		equal = bytes.Equal(i.req.Parameters, req.Parameters)
	}
	if !f.is("P07", "P24") {
		equal = equal && i.plan == req.PlanID
	}
	if f.is("P10") {
		equal = equal && osb.SameJSON(i.req.Context, req.Context)
	}
	if !f.is("P09") {
		equal = equal && account(i.req.Context) == account(req.Context)
		equal = equal && i.req.OrganizationGUID == req.OrganizationGUID && i.req.SpaceGUID == req.SpaceGUID
	}
	if !equal && i.state != "failed" {
		return osb.Conflict("it exists and is different")
	}
	return nil
}

func (f *fake) order(req *osb.ProvisionRequest, params map[string]any) osb.ProvisionResult {
	i := f.instances[req.InstanceID]
	old := ""
	if i == nil {
		i = &instance{runs: map[string]int{}, bindings: map[string]*bound{}}
		f.instances[req.InstanceID] = i
	} else {
		old = i.ops[0].id
	}
	i.req, i.params, i.plan = req, params, req.PlanID
	if req.OriginatingIdentity != nil && !f.is("G16") {
		i.identity = *req.OriginatingIdentity
	}
	op := f.start(i, provisioning, nil)
	if f.is("P27") && old != "" {
		op.id = old
	}
	if f.is("O07") {
		return osb.Created{}
	}
	accepted := osb.Accepted{Operation: op.id, DashboardURL: f.dashboard(req.InstanceID)}
	if f.is("P03") {
		accepted.DashboardURL = ""
	}
	return accepted
}

func (f *fake) GetInstance(_ context.Context, req *osb.GetInstanceRequest) (*osb.Instance, error) {
	defer f.lock()()
	i := f.instances[req.InstanceID]
	if i == nil {
		return nil, osb.NotFound("there is no such instance")
	}
	switch i.state {
	case "ready":
		if f.is("F02") && i.runs["reads"] == 0 {
			i.runs["reads"]++
			return nil, osb.NotFound("not yet")
		}
	case updating:
		if !f.is("F05") {
			return nil, osb.ConcurrencyError()
		}
	case provisioning:
		if !f.is("F01") {
			return nil, osb.NotFound("it is being provisioned")
		}
	case deprovisioning:
		if !f.is("F06") {
			return nil, osb.NotFound("it is being deprovisioned")
		}
	default:
		if !f.is("F04") {
			return nil, osb.NotFound("it does not exist")
		}
	}
	raw, err := json.Marshal(i.params)
	if err != nil {
		return nil, err
	}
	out := &osb.Instance{ServiceID: i.req.ServiceID, PlanID: i.plan, DashboardURL: f.dashboard(req.InstanceID), Parameters: raw}
	if f.is("F03") {
		out.Parameters = nil
	}
	return out, nil
}

func (f *fake) Update(_ context.Context, req *osb.UpdateRequest) (osb.UpdateResult, error) {
	defer f.lock()()
	i := f.instances[req.InstanceID]
	if i == nil || i.state == "gone" {
		if f.is("U20") {
			return osb.Updated{}, nil
		}
		return nil, osb.NotFound("there is no such instance")
	}
	if e := f.checkParameters(parameters(req.Parameters), i.plan, false); e != nil {
		return nil, e
	}
	if req.Plan == nil && !f.is("U17") {
		if e := req.Service.Plan(i.plan).CheckMaintenanceInfo(req.MaintenanceInfo); e != nil {
			return nil, e
		}
	}
	if !req.AcceptsIncomplete && !f.is("U01") {
		return nil, osb.AsyncRequired()
	}
	plan, params := i.plan, maps.Clone(i.params)
	if f.is("U14") {
		params = map[string]any{}
	}
	maps.Copy(params, parameters(req.Parameters))
	if f.is("U13") && req.Parameters == nil {
		params = map[string]any{}
	}
	if req.PlanID != "" {
		plan = req.PlanID
	}
	if f.is("U12") {
		plan = "pb"
	}
	if f.is("U19") && req.PreviousValues != nil {
		return nil, osb.Conflict("the previous values are wrong")
	}
	if plan != i.plan && !planUpdateable(req.Service, req.Service.Plan(i.plan)) && !f.is("U10") {
		return nil, osb.PlanNotUpdateable()
	}
	if i.state != "ready" {
		op := i.newest()
		if op.kind == updating && bytes.Equal(op.request, req.Body) && !f.is("U05") {
			return osb.Accepted{Operation: op.id}, nil
		}
		if f.is("U06", "U07") {
			return nil, osb.Conflict("busy")
		}
		return nil, osb.ConcurrencyError()
	}
	if f.is("U15") && req.Context != nil {
		params = map[string]any{}
	}
	maintained := req.MaintenanceInfo != nil && !f.is("U16")
	if plan == i.plan && fmt.Sprint(params) == fmt.Sprint(i.params) && !maintained && !f.is("U08") {
		return osb.Updated{}, nil
	}
	if f.is("U04") {
		i.params = params
		return osb.Updated{}, nil
	}
	op := f.start(i, updating, req.Body)
	op.plan, op.params = plan, params
	if f.is("U09") {
		op.plan = i.plan
	}
	if f.is("F07") {
		op.params = i.params
	}
	return osb.Accepted{Operation: op.id}, nil
}

func (f *fake) logger() *slog.Logger { return slog.New(slog.NewTextHandler(&f.log, nil)) }
