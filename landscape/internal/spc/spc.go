// Package spc simulates SPC, which tells customers of maintenance: one event for each orchestration, with the instances
// that it is about (facts/keb.md 5.11).
package spc

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/kyma-project/keb/landscape/internal/answer"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// Name of the system, also the first part of its paths.
const Name = "spc"

// States of an instance in an event.
const (
	UnderMaintenance = "1"
	Finished         = "2"
	Cancelled        = "3"
)

// Event is the maintenance of an orchestration.
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

var (
	errUnknown = errors.New("there is no maintenance event of this orchestration")
	errExists  = errors.New("there is a maintenance event of this orchestration already")
)

// System is the simulator.
type System struct {
	*journal.Store
	now    func() time.Time
	events *journal.Table[Event]
}

// New opens the simulator's journal at path ("" keeps it in memory).
func New(path string, now func() time.Time) (*System, error) {
	events := journal.NewTable[Event]("event")
	store, err := journal.Open(path, events)
	if err != nil {
		return nil, err
	}
	return &System{Store: store, now: now, events: events}, nil
}

// Handler serves the paths under /spc; there is no auth. That an event cannot be created twice, and that one must be
// there to be updated, are assumptions: the real one is not public.
func (s *System) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /spc/createMaintenanceEvent", s.create)
	mux.HandleFunc("PATCH /spc/updateMaintenanceEvent", s.update)
	mux.HandleFunc("PATCH /spc/cancelMaintenanceEvent", s.cancel)
	return mux
}

// read decodes and checks the body of a call.
func read(w http.ResponseWriter, r *http.Request, tenants bool) (Event, bool) {
	var in Event
	err := answer.Decode(r, answer.MaxBody, &in)
	switch {
	case err != nil:
	case in.OrchestrationID == "":
		err = errors.New("orchestrationId is empty")
	case tenants && len(in.Tenants) == 0:
		err = errors.New("tenants is empty")
	}
	for i, t := range in.Tenants {
		if err != nil || !tenants {
			break
		}
		if t.InstanceID == "" {
			err = fmt.Errorf("tenants[%d].instanceId is empty", i)
		} else if !slices.Contains([]string{UnderMaintenance, Finished, Cancelled}, t.EventState) {
			err = fmt.Errorf("tenants[%d].eventState: %q is not allowed, use 1 (under maintenance), 2 (finished) or 3 (cancelled)", i, t.EventState)
		}
	}
	if err != nil {
		answer.Error(w, http.StatusBadRequest, "%v", err)
	}
	return in, err == nil
}

func (s *System) create(w http.ResponseWriter, r *http.Request) {
	in, ok := read(w, r, true)
	if !ok {
		return
	}
	if in.EventType != "0" && in.EventType != "1" {
		answer.Error(w, http.StatusBadRequest, "eventType: %q is not allowed, use 0 (kubernetes) or 1 (kyma)", in.EventType)
		return
	}
	in.CreatedAt, in.ChangedAt = s.now().UTC(), s.now().UTC()
	err := s.Update(func(tx *journal.Tx) error {
		if _, exists := s.events.Get(in.OrchestrationID); exists {
			return errExists
		}
		return s.events.Put(tx, in.OrchestrationID, in)
	})
	reply(w, http.StatusCreated, in, err)
}

func reply(w http.ResponseWriter, status int, e Event, err error) {
	switch {
	case errors.Is(err, errUnknown):
		answer.Error(w, http.StatusNotFound, "%v", err)
	case errors.Is(err, errExists):
		answer.Error(w, http.StatusConflict, "%v", err)
	case err != nil:
		answer.Error(w, http.StatusInternalServerError, "%v", err)
	default:
		answer.JSON(w, status, e)
	}
}

// update sets the named instances and leaves the others of the event alone.
func (s *System) update(w http.ResponseWriter, r *http.Request) {
	in, ok := read(w, r, true)
	if !ok {
		return
	}
	s.change(w, in.OrchestrationID, func(e *Event) {
		for _, t := range in.Tenants {
			i := slices.IndexFunc(e.Tenants, func(have Tenant) bool { return have.InstanceID == t.InstanceID })
			if i < 0 {
				e.Tenants = append(e.Tenants, t)
				continue
			}
			e.Tenants[i] = t
		}
	})
}

// cancel sets all instances of the event that are not finished.
func (s *System) cancel(w http.ResponseWriter, r *http.Request) {
	in, ok := read(w, r, false)
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
	reply(w, http.StatusOK, e, err)
}
