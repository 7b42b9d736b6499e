// Package avs simulates the Availability Service: evaluations that watch a URL (docs/contracts/avs.md).
package avs

import (
	_ "embed" // schemas of the requests
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// Name is the name of the system and the first part of its paths.
const Name = "avs"

// Config contains the credentials and options.
type Config struct {
	ClientID string // of the token request; its secret is empty
	Username string
	Password string
	// LookUp enables GET on the collection with the query parameter name. The real service is not known to support it.
	LookUp bool
}

// The schemas of the request bodies.
var (
	//go:embed create.json
	createDocument []byte
	//go:embed tag.json
	tagDocument []byte
	//go:embed lifecycle.json
	lifecycleDocument []byte

	createSchema    = contract.MustSchema(createDocument)
	tagSchema       = contract.MustSchema(tagDocument)
	lifecycleSchema = contract.MustSchema(lifecycleDocument)
)

// Evaluation is a stored evaluation, and the answer about it (docs/contracts/avs.md#evaluation).
type Evaluation struct {
	DefinitionType   string  `json:"definition_type"`
	Name             string  `json:"name"`
	Description      string  `json:"description"`
	Service          string  `json:"service"`
	URL              string  `json:"url"`
	CheckType        string  `json:"check_type"`
	Interval         int     `json:"interval"`
	TesterAccessID   int64   `json:"tester_access_id"`
	Timeout          int     `json:"timeout"`
	ReadOnly         bool    `json:"read_only"`
	ContentCheck     string  `json:"content_check"`
	ContentCheckType string  `json:"content_check_type"`
	Threshold        float64 `json:"threshold"`
	GroupID          int64   `json:"group_id"`
	Visibility       string  `json:"visibility"`
	ParentID         int64   `json:"parent_id"`
	Tags             []Tag   `json:"tags"`
	DateCreated      int64   `json:"dateCreated"` // epoch milliseconds
	DateChanged      int64   `json:"dateChanged"`
	Owner            string  `json:"owner"`
	Status           string  `json:"status"`
	Alerts           []int64 `json:"alerts"`
	ID               int64   `json:"id"`
	LegacyCheckID    int64   `json:"legacy_check_id"`
	InternalInterval int     `json:"internal_interval"`
	AuthType         string  `json:"auth_type"`
	OutageEventsOnly bool    `json:"individual_outage_events_only"`
	IDOnTester       string  `json:"id_on_tester"`
}

// Tag on an evaluation.
type Tag struct {
	Content      string `json:"content"`
	TagClassID   int64  `json:"tag_class_id"`
	TagClassName string `json:"tag_class_name"`
}

// create has another type of threshold than Evaluation: the request contains a string, the answer a number.
type create struct {
	Evaluation
	Threshold string `json:"threshold"`
}

var errNotFound = errors.New("evaluation not found")

// System is the simulator.
type System struct {
	*journal.Store
	cfg         Config
	now         func() time.Time
	tokens      *contract.Issuer
	evaluations *journal.Table[Evaluation]
	byName      journal.Index
}

// New opens the simulator's journal at path ("" keeps all data in memory).
func New(cfg Config, path string, now func() time.Time) (*System, error) {
	s := &System{cfg: cfg, now: now, tokens: contract.NewIssuer(Name, cfg.Password, now), evaluations: journal.NewTable[Evaluation]("evaluation")}
	s.evaluations.Index(&s.byName, func(e Evaluation) string { return e.Name })
	store, err := journal.Open(path, s.evaluations)
	if err != nil {
		return nil, err
	}
	s.Store = store
	return s, nil
}

// Handler serves the paths under /avs. It serves GET on the collection only with LookUp.
func (s *System) Handler() http.Handler {
	const base = "/avs/api/v2/evaluationmetadata"
	mux := http.NewServeMux()
	mux.HandleFunc("POST /avs/oauth2/token", s.token)
	mux.HandleFunc("POST "+base, s.authorized(s.create))
	if s.cfg.LookUp {
		mux.HandleFunc("GET "+base, s.authorized(s.list))
	}
	mux.HandleFunc("GET "+base+"/{id}", s.authorized(s.get))
	mux.HandleFunc("DELETE "+base+"/{id}", s.authorized(s.delete))
	mux.HandleFunc("POST "+base+"/{id}/tag", s.authorized(s.tag))
	mux.HandleFunc("PUT "+base+"/{id}/lifecycle", s.authorized(s.lifecycle))
	mux.HandleFunc("DELETE "+base+"/{parent}/child/{id}", s.authorized(s.removeChild))
	return mux
}

func (s *System) token(w http.ResponseWriter, r *http.Request) {
	client, secret, ok := contract.TokenRequest(w, r, "password", "username", "password")
	if !ok {
		return
	}
	if secret != "" {
		contract.Violation(r, "header Authorization: the client secret must be empty")
		contract.RefuseToken(w, http.StatusUnauthorized, "invalid_client", "the client secret must be empty")
		return
	}
	if client != s.cfg.ClientID {
		contract.RefuseToken(w, http.StatusUnauthorized, "invalid_client", "unknown client id")
		return
	}
	user := r.PostFormValue("username")
	if user != s.cfg.Username || !contract.SameSecret(r.PostFormValue("password"), s.cfg.Password) {
		contract.RefuseToken(w, http.StatusUnauthorized, "invalid_grant", "wrong username or password")
		return
	}
	s.tokens.Write(w, user, "")
}

func (s *System) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.tokens.Subject(r); !ok {
			fail(w, http.StatusUnauthorized, "missing, wrong or expired token")
			return
		}
		if r.Method != http.MethodGet || !s.cfg.LookUp {
			if err := contract.Query(r); err != nil {
				fail(w, http.StatusBadRequest, "%v", err)
				return
			}
		}
		next(w, r)
	}
}

func fail(w http.ResponseWriter, status int, format string, args ...any) {
	contract.JSON(w, status, map[string]any{"status": status, "message": fmt.Sprintf(format, args...)})
}

// body decodes a body that must match the schema, or answers 400.
func body(w http.ResponseWriter, r *http.Request, schema *contract.Schema, v any) bool {
	err := schema.Decode(r, v)
	if err != nil {
		fail(w, http.StatusBadRequest, "%v", err)
	}
	return err == nil
}

func (s *System) create(w http.ResponseWriter, r *http.Request) {
	var in create
	if !body(w, r, createSchema, &in) {
		return
	}
	if isExternal := in.CheckType != ""; isExternal != (in.URL != "") || isExternal != strings.Contains(in.Name, "-Kyma-ext-") {
		contract.Violation(r, "url, check_type, name: an internal evaluation has neither a URL nor a check type, an external one has both")
		fail(w, http.StatusBadRequest, "url and check_type do not fit the name")
		return
	}
	threshold, err := strconv.ParseFloat(in.Threshold, 64)
	if err != nil {
		fail(w, http.StatusBadRequest, "threshold must be a number in a string")
		return
	}
	now := s.now().UnixMilli()
	e := in.Evaluation
	e.Threshold = threshold
	e.DateCreated, e.DateChanged = now, now
	e.Owner, e.Status, e.AuthType, e.InternalInterval = s.cfg.Username, "ACTIVE", "AUTH_NONE", 60
	e.Alerts = []int64{}
	if e.Tags == nil {
		e.Tags = []Tag{}
	}
	err = s.Update(func(tx *journal.Tx) error {
		e.ID = tx.Next()
		return s.evaluations.Put(tx, key(e.ID), e)
	})
	if err != nil {
		fail(w, http.StatusInternalServerError, "%v", err)
		return
	}
	contract.JSON(w, http.StatusOK, e)
}

func key(id int64) string { return strconv.FormatInt(id, 10) }

func (s *System) list(w http.ResponseWriter, r *http.Request) {
	name := r.URL.Query().Get("name")
	if name == "" {
		fail(w, http.StatusBadRequest, "query parameter name is missing")
		return
	}
	found := []Evaluation{}
	s.View(func() {
		for _, id := range s.byName.IDs(name) {
			e, _ := s.evaluations.Get(id)
			found = append(found, e)
		}
	})
	slices.SortFunc(found, func(a, b Evaluation) int { return int(a.ID - b.ID) })
	contract.JSON(w, http.StatusOK, found)
}

func (s *System) get(w http.ResponseWriter, r *http.Request) {
	s.change(w, r, nil)
}

// change applies f to the evaluation of the path and returns the result; without f it only reads.
func (s *System) change(w http.ResponseWriter, r *http.Request, f func(*Evaluation)) {
	id := r.PathValue("id")
	var e Evaluation
	err := s.Update(func(tx *journal.Tx) error {
		var ok bool
		if e, ok = s.evaluations.Get(id); !ok {
			return errNotFound
		}
		if f == nil {
			return nil
		}
		f(&e)
		e.DateChanged = s.now().UnixMilli()
		return s.evaluations.Put(tx, id, e)
	})
	reply(w, id, err, e)
}

func reply(w http.ResponseWriter, id string, err error, body any) {
	switch {
	case errors.Is(err, errNotFound):
		fail(w, http.StatusNotFound, "evaluation %s does not exist", id)
	case err != nil:
		fail(w, http.StatusInternalServerError, "%v", err)
	default:
		contract.JSON(w, http.StatusOK, body)
	}
}

func (s *System) delete(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	err := s.Update(func(tx *journal.Tx) error {
		if _, ok := s.evaluations.Get(id); !ok {
			return errNotFound
		}
		return s.evaluations.Delete(tx, id)
	})
	reply(w, id, err, map[string]any{})
}

func (s *System) tag(w http.ResponseWriter, r *http.Request) {
	var tag Tag
	if !body(w, r, tagSchema, &tag) {
		return
	}
	s.change(w, r, func(e *Evaluation) { e.Tags = append(slices.Clone(e.Tags), tag) })
}

func (s *System) lifecycle(w http.ResponseWriter, r *http.Request) {
	var status string
	if !body(w, r, lifecycleSchema, &status) {
		return
	}
	s.change(w, r, func(e *Evaluation) { e.Status = status })
}

func (s *System) removeChild(w http.ResponseWriter, r *http.Request) {
	parent, id := r.PathValue("parent"), r.PathValue("id")
	var e Evaluation
	err := s.Update(func(tx *journal.Tx) error {
		var ok bool
		if e, ok = s.evaluations.Get(id); !ok || key(e.ParentID) != parent {
			return errNotFound
		}
		e.ParentID, e.DateChanged = 0, s.now().UnixMilli()
		return s.evaluations.Put(tx, id, e)
	})
	if errors.Is(err, errNotFound) {
		fail(w, http.StatusBadRequest, "evaluation %s does not contain subevaluation %s", parent, id)
		return
	}
	reply(w, id, err, e)
}
