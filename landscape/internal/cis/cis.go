// Package cis simulates the cloud inventory: central events that tell what became of sub-accounts (facts/keb.md 5.7),
// in both versions of its API.
package cis

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kyma-project/keb/landscape/internal/answer"
	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/journal"
	"github.com/kyma-project/keb/landscape/internal/ondemand"
	"github.com/kyma-project/keb/landscape/internal/token"
)

// Name of the system, also the first part of its paths.
const Name = "cis"

// Deletion is the type of the event that a sub-account was deleted.
const Deletion = "Subaccount_Deletion"

// Bounds of a page.
const (
	defaultPageSize = 150
	maxPageSize     = 150
)

// Config is who may ask.
type Config struct {
	ClientID string
	Secret   string
}

// Event is what the inventory tells of one sub-account.
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
	tokens *token.Issuer
	events *journal.Table[Event]
}

// New opens the simulator's journal at path ("" keeps it in memory).
func New(cfg Config, path string, now func() time.Time) (*System, error) {
	s := &System{cfg: cfg, now: now, tokens: token.NewIssuer(Name, cfg.Secret, now), events: journal.NewTable[Event]("event")}
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
	client, secret, _ := token.Client(r)
	if grant := r.PostFormValue("grant_type"); grant != "client_credentials" {
		token.Refuse(w, http.StatusBadRequest, "unsupported_grant_type", "grant_type must be client_credentials")
		return
	}
	if client != s.cfg.ClientID || !token.Equal(secret, s.cfg.Secret) {
		token.Refuse(w, http.StatusUnauthorized, "invalid_client", "wrong client id or secret")
		return
	}
	s.tokens.Write(w, client, "")
}

func (s *System) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.tokens.Subject(r); !ok {
			answer.Error(w, http.StatusUnauthorized, "missing, wrong or expired token")
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

// list answers one page, counted from 0. A page beyond the last is empty: the job of the original asks for it.
func (s *System) list(w http.ResponseWriter, r *http.Request) {
	if err := contract.Query(r, "eventType", "pageSize", "pageNum", "sortField", "sortOrder"); err != nil {
		answer.Error(w, http.StatusBadRequest, "%v", err)
		return
	}
	q := r.URL.Query()
	size, err := number(q.Get("pageSize"), defaultPageSize, 1, maxPageSize)
	if err != nil {
		answer.Error(w, http.StatusBadRequest, "pageSize: %v", err)
		return
	}
	num, err := number(q.Get("pageNum"), 0, 0, 1_000_000)
	if err != nil {
		answer.Error(w, http.StatusBadRequest, "pageNum: %v", err)
		return
	}
	order := cmp.Or(q.Get("sortOrder"), "ASC")
	switch {
	case q.Has("sortField") && q.Get("sortField") != "creationTime":
		answer.Error(w, http.StatusBadRequest, "sortField: %q is not allowed, use creationTime", q.Get("sortField"))
		return
	case order != "ASC" && order != "DESC":
		answer.Error(w, http.StatusBadRequest, "sortOrder: %q is not allowed, use ASC or DESC", order)
		return
	}
	found := s.sorted(q.Get("eventType"))
	if order == "DESC" {
		slices.Reverse(found)
	}
	out := page{Total: len(found), TotalPages: (len(found) + size - 1) / size, PageNum: num, Events: []Event{}}
	first := min(num*size, len(found))
	out.Events = append(out.Events, found[first:min(first+size, len(found))]...)
	answer.JSON(w, http.StatusOK, out)
}

// deletionV1 is the type of the deletions of sub-accounts in version 1.
const deletionV1 = "MASTER_SUBACCOUNT_DELETION"

// listV1 answers one page of the deletions as version 1 does, counted from 1. The data of an event is a string with an object in it,
// or the object itself; both are answered by turns.
func (s *System) listV1(w http.ResponseWriter, r *http.Request) {
	err := contract.Query(r, "ts", "type", "resultsPerPage", "page")
	q := r.URL.Query()
	if err == nil && (q.Get("ts") != "1" || q.Get("type") != deletionV1) {
		err = fmt.Errorf("query: ts must be 1 and type %s", deletionV1)
		contract.Violation(r, "%v", err)
	}
	size, errSize := number(q.Get("resultsPerPage"), defaultPageSize, 1, 1000)
	num, errNum := number(q.Get("page"), 1, 1, 1_000_000)
	if err := errors.Join(err, errSize, errNum); err != nil {
		answer.Error(w, http.StatusBadRequest, "%v", err)
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
	answer.JSON(w, http.StatusOK, map[string]any{"totalResults": len(found), "totalPages": (len(found) + size - 1) / size, "events": events})
}

// sorted is the events of a type, all for "", oldest first.
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

func number(text string, fallback, lowest, highest int) (int, error) {
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < lowest || n > highest {
		return 0, fmt.Errorf("%q is not allowed, use %d to %d", text, lowest, highest)
	}
	return n, nil
}

// newEvent is what the admin API takes.
type newEvent struct {
	SubaccountID string `json:"subaccountId"`
	EventType    string `json:"eventType"`
	CreationTime int64  `json:"creationTime"`
}

// Events serves the admin API: GET lists the events, POST adds one, DELETE drops all.
func (s *System) Events(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		s.add(w, r)
		return
	}
	ondemand.Serve(w, r, s.Store, s.events, s.add)
}

func (s *System) add(w http.ResponseWriter, r *http.Request) {
	in := newEvent{EventType: Deletion, CreationTime: s.now().UnixMilli()}
	if !ondemand.Decode(w, r, &in, "subaccountId, eventType (default "+Deletion+") and creationTime (epoch milliseconds, default now)") {
		return
	}
	switch {
	case strings.TrimSpace(in.SubaccountID) == "":
		answer.Error(w, http.StatusBadRequest, "subaccountId is missing: want the id of a sub-account")
		return
	case in.EventType == "":
		answer.Error(w, http.StatusBadRequest, "eventType must not be empty, use for example %s", Deletion)
		return
	case in.CreationTime < 0:
		answer.Error(w, http.StatusBadRequest, "creationTime: %d is negative, want epoch milliseconds", in.CreationTime)
		return
	}
	e := Event{CreationTime: in.CreationTime, EntityID: in.SubaccountID, EventType: in.EventType}
	err := s.Update(func(tx *journal.Tx) error {
		e.ID = tx.Next()
		return s.events.Put(tx, strconv.FormatInt(e.ID, 10), e)
	})
	if err != nil {
		answer.Error(w, http.StatusInternalServerError, "%v", err)
		return
	}
	answer.JSON(w, http.StatusCreated, e)
}
