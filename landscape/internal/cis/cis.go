// Package cis simulates the cloud inventory, which publishes central events about sub-accounts (docs/contracts/cis.md), in both versions of
// its API.
package cis

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/fault"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// Name is the name of the system and the first part of its paths.
const Name = "cis"

// Deletion is the type of the event for a deleted sub-account.
const Deletion = "Subaccount_Deletion"

// The limits of a page.
const (
	defaultPageSize = 150
	maxPageSize     = 150
	maxPageSizeV1   = 1000
	maxPages        = 1_000_000
)

// Config contains the credentials.
type Config struct {
	ClientID string
	Secret   string
}

// Event is an event about a sub-account.
type Event struct {
	ID           int64  `json:"id"`
	CreationTime int64  `json:"creationTime"` // epoch milliseconds
	EntityID     string `json:"entityId"`     // the sub-account
	EventType    string `json:"eventType"`
}

// System is the simulator.
type System struct {
	*journal.Store
	cfg    Config
	now    func() time.Time
	tokens *contract.Issuer
	events *journal.Table[Event]
}

// New opens the simulator's journal at path ("" keeps all data in memory).
func New(cfg Config, path string, now func() time.Time) (*System, error) {
	s := &System{cfg: cfg, now: now, tokens: contract.NewIssuer(Name, cfg.Secret, now), events: journal.NewTable[Event]("event")}
	store, err := journal.Open(path, s.events)
	if err != nil {
		return nil, err
	}
	s.Store = store
	return s, nil
}

// Handler serves the paths under /cis.
func (s *System) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /cis/oauth/token", s.token)
	mux.HandleFunc("GET /cis/events/v1/events/central", s.authorized(s.list))
	mux.HandleFunc("GET /cis/public/rest/v2/events", s.authorized(s.listV1))
	return mux
}

func (s *System) token(w http.ResponseWriter, r *http.Request) {
	client, secret, ok := contract.TokenRequest(w, r, "client_credentials")
	if !ok {
		return
	}
	if client != s.cfg.ClientID || !contract.SameSecret(secret, s.cfg.Secret) {
		contract.RefuseToken(w, http.StatusUnauthorized, "invalid_client", "wrong client id or secret")
		return
	}
	s.tokens.Write(w, client, "")
}

func (s *System) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.tokens.Subject(r); !ok {
			contract.Error(w, http.StatusUnauthorized, "missing, wrong or expired token")
			return
		}
		next(w, r)
	}
}

type page struct {
	Total      int     `json:"total"`
	TotalPages int     `json:"totalPages"`
	PageNum    int     `json:"pageNum"`
	Events     []Event `json:"events"`
}

// list returns a page; the first page is 0. A page after the last one is empty: the original's job requests it.
func (s *System) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	size, errSize := number(q, "pageSize", defaultPageSize, 1, maxPageSize)
	num, errNum := number(q, "pageNum", 0, 0, maxPages)
	order := cmp.Or(q.Get("sortOrder"), "ASC")
	err := contract.Query(r, "eventType", "pageSize", "pageNum", "sortField", "sortOrder")
	if err == nil {
		err = broken(r, errSize, errNum, oneOf(q, "sortField", "creationTime"), oneOf(q, "sortOrder", "ASC", "DESC"))
	}
	if err != nil {
		contract.Error(w, http.StatusBadRequest, "%v", err)
		return
	}
	found := s.sorted(q.Get("eventType"))
	if order == "DESC" {
		slices.Reverse(found)
	}
	out := page{Total: len(found), TotalPages: (len(found) + size - 1) / size, PageNum: num, Events: []Event{}}
	first := min(num*size, len(found))
	out.Events = append(out.Events, found[first:min(first+size, len(found))]...)
	contract.JSON(w, http.StatusOK, out)
}

// deletionV1 is the type of deletion events in version 1.
const deletionV1 = "MASTER_SUBACCOUNT_DELETION"

// listV1 returns a page of the deletions in the format of version 1; the first page is 1. The data of an event is either a string with an
// object in it, or the object itself. The answers alternate between both.
func (s *System) listV1(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	size, errSize := number(q, "resultsPerPage", defaultPageSize, 1, maxPageSizeV1)
	num, errNum := number(q, "page", 1, 1, maxPages)
	err := contract.Query(r, "ts", "type", "resultsPerPage", "page")
	if err == nil && (q.Get("ts") != "1" || q.Get("type") != deletionV1) {
		err = broken(r, fmt.Errorf("query: ts must be 1 and type %s", deletionV1))
	}
	if err == nil {
		err = broken(r, errSize, errNum)
	}
	if err != nil {
		contract.Error(w, http.StatusBadRequest, "%v", err)
		return
	}
	found := s.sorted(Deletion)
	events := []map[string]any{}
	first := min((num-1)*size, len(found))
	for i, e := range found[first:min(first+size, len(found))] {
		var data any = map[string]string{"subaccountGuid": e.EntityID}
		if i%2 == 0 {
			data = fmt.Sprintf(`{"subaccountGuid":%q}`, e.EntityID)
		}
		events = append(events, map[string]any{"type": deletionV1, "eventData": data})
	}
	contract.JSON(w, http.StatusOK, map[string]any{"totalResults": len(found), "totalPages": (len(found) + size - 1) / size, "events": events})
}

// sorted returns the events of a type, or all for "", the oldest first.
func (s *System) sorted(eventType string) []Event {
	var found []Event
	s.View(func() {
		for _, e := range s.events.All() {
			if eventType == "" || e.EventType == eventType {
				found = append(found, e)
			}
		}
	})
	slices.SortFunc(found, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.CreationTime, b.CreationTime), cmp.Compare(a.ID, b.ID))
	})
	return found
}

// broken records the problems of a request as one violation, unless all are nil.
func broken(r *http.Request, problems ...error) error {
	err := errors.Join(problems...)
	if err != nil {
		contract.Violation(r, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return err
}

// number reads an optional query parameter that must be in a range.
func number(q url.Values, name string, fallback, lowest, highest int) (int, error) {
	if !q.Has(name) {
		return fallback, nil
	}
	n, err := strconv.Atoi(q.Get(name))
	if err != nil || n < lowest || n > highest {
		return 0, fmt.Errorf("query parameter %s: must be %d to %d", name, lowest, highest)
	}
	return n, nil
}

// oneOf checks an optional query parameter that must have one of these values.
func oneOf(q url.Values, name string, allowed ...string) error {
	if !q.Has(name) || slices.Contains(allowed, q.Get(name)) {
		return nil
	}
	return fmt.Errorf("query parameter %s: must be %s", name, strings.Join(allowed, " or "))
}

// newEvent is a new event in the admin API.
type newEvent struct {
	SubaccountID string `json:"subaccountId"`
	EventType    string `json:"eventType"`
	CreationTime int64  `json:"creationTime"`
}

// Events serves the admin API: GET lists the events, POST adds one, DELETE removes all.
func (s *System) Events(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		s.add(w, r)
		return
	}
	fault.ServeFailures(w, r, s.Store, s.events, s.add)
}

func (s *System) add(w http.ResponseWriter, r *http.Request) {
	in := newEvent{EventType: Deletion, CreationTime: s.now().UnixMilli()}
	if !fault.DecodeFailure(w, r, &in, "subaccountId, eventType (default "+Deletion+") and creationTime (epoch milliseconds, default now)") {
		return
	}
	switch {
	case strings.TrimSpace(in.SubaccountID) == "":
		contract.Error(w, http.StatusBadRequest, "subaccountId is missing: want the id of a sub-account")
		return
	case in.EventType == "":
		contract.Error(w, http.StatusBadRequest, "eventType must not be empty, use for example %s", Deletion)
		return
	case in.CreationTime < 0:
		contract.Error(w, http.StatusBadRequest, "creationTime: %d is negative, want epoch milliseconds", in.CreationTime)
		return
	}
	e := Event{CreationTime: in.CreationTime, EntityID: in.SubaccountID, EventType: in.EventType}
	err := s.Update(func(tx *journal.Tx) error {
		e.ID = tx.Next()
		return s.events.Put(tx, strconv.FormatInt(e.ID, 10), e)
	})
	contract.Reply(w, err, http.StatusCreated, e)
}
