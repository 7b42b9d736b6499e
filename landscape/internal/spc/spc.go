// Package spc simulates SPC, which informs customers about maintenance: one event for each orchestration, with its instances
// (docs/contracts/spc.md).
package spc

import (
	"cmp"
	_ "embed" // schemas of the requests
	"net/http"
	"slices"
	"time"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// Name is the name of the system and the first part of its paths.
const Name = "spc"

// States of an instance in an event.
const (
	UnderMaintenance = "1"
	Finished         = "2"
	Cancelled        = "3"
)

// Event describes the maintenance of an orchestration.
type Event struct {
	OrchestrationID string    `json:"orchestrationId"`
	EventType       string    `json:"eventType"` // "0" kubernetes, "1" kyma
	Tenants         []Tenant  `json:"tenants"`
	CreatedAt       time.Time `json:"createdAt"`
	ChangedAt       time.Time `json:"changedAt"`
}

// Tenant is an instance under maintenance.
type Tenant struct {
	InstanceID    string `json:"instanceId"`
	StartDateTime string `json:"startDateTime"`
	EndDateTime   string `json:"endDateTime"`
	EventState    string `json:"eventState"`
}

// The schemas of the request bodies.
var (
	//go:embed create.json
	createDocument []byte
	//go:embed update.json
	updateDocument []byte
	//go:embed cancel.json
	cancelDocument []byte

	createSchema = contract.MustSchema(createDocument)
	updateSchema = contract.MustSchema(updateDocument)
	cancelSchema = contract.MustSchema(cancelDocument)
)

var errUnknown = &contract.StatusError{Status: http.StatusNotFound, Message: "there is no maintenance event of this orchestration"}

// System is the simulator.
type System struct {
	*journal.Store
	now    func() time.Time
	events *journal.Table[Event]
}

// New opens the simulator's journal at path ("" keeps all data in memory).
func New(path string, now func() time.Time) (*System, error) {
	events := journal.NewTable[Event]("event")
	store, err := journal.Open(path, events)
	if err != nil {
		return nil, err
	}
	return &System{Store: store, now: now, events: events}, nil
}

// Handler serves the paths under /spc, without authentication. An existing event may be created again, which updates the given instances. An
// event must exist to be updated or cancelled; that is an assumption, because the real service is not public.
func (s *System) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /spc/createMaintenanceEvent", s.create)
	mux.HandleFunc("PATCH /spc/updateMaintenanceEvent", s.update)
	mux.HandleFunc("PATCH /spc/cancelMaintenanceEvent", s.cancel)
	return mux
}

// read decodes and validates the body of a call.
func read(w http.ResponseWriter, r *http.Request, schema *contract.Schema) (Event, bool) {
	var in Event
	if err := contract.Query(r); err != nil {
		contract.Error(w, http.StatusBadRequest, "%v", err)
		return in, false
	}
	return in, schema.Read(w, r, &in)
}

func (s *System) create(w http.ResponseWriter, r *http.Request) {
	in, ok := read(w, r, createSchema)
	if !ok {
		return
	}
	err := s.Update(func(tx *journal.Tx) error {
		now := s.now().UTC()
		if old, exists := s.events.Get(in.OrchestrationID); exists {
			in.CreatedAt, in.ChangedAt = old.CreatedAt, now
			in.Tenants = merged(old.Tenants, in.Tenants)
			return s.events.Put(tx, in.OrchestrationID, in)
		}
		in.CreatedAt, in.ChangedAt = now, now
		return s.events.Put(tx, in.OrchestrationID, in)
	})
	contract.Reply(w, err, http.StatusCreated, in)
}

// merged sets the members in changes, and keeps the others.
func merged(tenants, changes []Tenant) []Tenant {
	tenants = slices.Clone(tenants)
	for _, t := range changes {
		i := slices.IndexFunc(tenants, func(have Tenant) bool { return have.InstanceID == t.InstanceID })
		if i < 0 {
			tenants = append(tenants, t)
			continue
		}
		have := &tenants[i]
		have.StartDateTime = cmp.Or(t.StartDateTime, have.StartDateTime)
		have.EndDateTime = cmp.Or(t.EndDateTime, have.EndDateTime)
		have.EventState = cmp.Or(t.EventState, have.EventState)
	}
	return tenants
}

// update updates the given instances and keeps the others of the event.
func (s *System) update(w http.ResponseWriter, r *http.Request) {
	in, ok := read(w, r, updateSchema)
	if !ok {
		return
	}
	known := false
	s.View(func() { _, known = s.events.Get(in.OrchestrationID) })
	if !known {
		contract.Violation(r, "orchestrationId: updated before it was created")
	}
	s.change(w, in.OrchestrationID, func(e *Event) { e.Tenants = merged(e.Tenants, in.Tenants) })
}

// cancel cancels all unfinished instances of the event.
func (s *System) cancel(w http.ResponseWriter, r *http.Request) {
	in, ok := read(w, r, cancelSchema)
	if !ok {
		return
	}
	s.change(w, in.OrchestrationID, func(e *Event) {
		for i := range e.Tenants {
			if e.Tenants[i].EventState != Finished {
				e.Tenants[i].EventState = Cancelled
			}
		}
	})
}

func (s *System) change(w http.ResponseWriter, id string, f func(*Event)) {
	var e Event
	err := s.Update(func(tx *journal.Tx) error {
		var ok bool
		if e, ok = s.events.Get(id); !ok {
			return errUnknown
		}
		e.Tenants = slices.Clone(e.Tenants)
		f(&e)
		e.ChangedAt = s.now().UTC()
		return s.events.Put(tx, id, e)
	})
	contract.Reply(w, err, http.StatusOK, e)
}
