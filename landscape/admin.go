package landscape

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/fault"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// withFailures is a system that can simulate failures of asynchronous work for single instances.
type withFailures interface {
	// Failures serves GET (list), PUT (set one) and DELETE (remove all).
	Failures(w http.ResponseWriter, r *http.Request)
}

// withKubeconfigs is a system with configurable kubeconfigs of instances' runtimes.
type withKubeconfigs interface {
	// Kubeconfigs serves GET (list), PUT (set one) and DELETE (remove all).
	Kubeconfigs(w http.ResponseWriter, r *http.Request)
}

// withEvents is a system whose events must be created with the admin API.
type withEvents interface {
	// Events serves GET (list), POST (add one) and DELETE (remove all).
	Events(w http.ResponseWriter, r *http.Request)
}

// entry is a system with its gate.
type entry struct {
	Name   string
	URL    string // path under the landscape's base URL
	System system
	Gate   *fault.Gate
	Book   *contract.Book
}

// adminAPI serves the data and the requests of each system, and its faults. Settings and violations are kept after a restart.
type adminAPI struct {
	store      *journal.Store
	settings   *journal.Table[fault.Settings]
	violations *journal.Table[contract.Record]
	entries    []entry
	log        *slog.Logger
}

// newAdmin opens the journal of settings and violations at path ("" keeps all data in memory), and restores the saved settings and violations.
func newAdmin(path string, entries []entry, log *slog.Logger) (*adminAPI, error) {
	a := &adminAPI{
		settings: journal.NewTable[fault.Settings]("settings"), violations: journal.NewTable[contract.Record]("violations"),
		entries: entries, log: log,
	}
	var err error
	if a.store, err = journal.Open(path, a.settings, a.violations); err != nil {
		return nil, err
	}
	for _, e := range entries {
		if s, ok := a.settings.Get(e.Name); ok {
			e.Gate.Set(s)
		}
		record, _ := a.violations.Get(e.Name)
		e.Book.Restore(record, func(r contract.Record) { a.save(e.Name, r) })
	}
	return a, nil
}

func (a *adminAPI) save(system string, r contract.Record) {
	if len(r.Last) > 0 {
		last := r.Last[len(r.Last)-1]
		a.log.Warn("contract violated", "system", system, "request", last.Request, "problem", last.Problem)
	}
	err := a.store.Update(func(tx *journal.Tx) error { return a.violations.Put(tx, system, r) })
	if err != nil {
		a.log.Error("contract violation not saved", "system", system, "err", err)
	}
}

// Close closes the journal.
func (a *adminAPI) Close() error { return a.store.Close() }

// Handler serves the paths under /admin.
func (a *adminAPI) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /admin/systems", a.list)
	mux.HandleFunc("GET /admin/systems/{name}", a.named(a.get))
	mux.HandleFunc("PUT /admin/systems/{name}", a.named(a.set))
	mux.HandleFunc("DELETE /admin/systems/{name}/settings", a.named(a.reset))
	mux.HandleFunc("DELETE /admin/systems/{name}/violations", a.named(a.clear))
	mux.HandleFunc("GET /admin/systems/{name}/objects", a.named(a.objects))
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		mux.HandleFunc(method+" /admin/systems/{name}/failures", a.named(a.failures))
		mux.HandleFunc(method+" /admin/systems/{name}/kubeconfigs", a.named(a.kubeconfigs))
	}
	for _, method := range []string{"GET", "POST", "DELETE"} {
		mux.HandleFunc(method+" /admin/systems/{name}/events", a.named(a.events))
	}
	return mux
}

func (a *adminAPI) named(next func(http.ResponseWriter, *http.Request, entry)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		names := make([]string, 0, len(a.entries))
		for _, e := range a.entries {
			if e.Name == r.PathValue("name") {
				next(w, r, e)
				return
			}
			names = append(names, e.Name)
		}
		contract.Error(w, http.StatusBadRequest, "unknown system %q, there are %s", r.PathValue("name"), strings.Join(names, ", "))
	}
}

type systemView struct {
	Name     string           `json:"name"`
	URL      string           `json:"url"`
	Settings fault.Settings   `json:"settings"`
	Objects  map[string]int64 `json:"objects"` // held now, by kind
	Created  map[string]int64 `json:"created"` // ever created, by kind, across restarts
	Calls    []fault.Call     `json:"calls"`   // since the process started
	// Violations contains the number of requests that violated the contract, including earlier processes, and the last 20 of them.
	Violations contract.Record `json:"violations"`
}

func view(e entry) (systemView, error) {
	objects, err := e.System.Objects()
	if err != nil {
		return systemView{}, err
	}
	v := systemView{Name: e.Name, URL: e.URL, Settings: e.Gate.Settings(), Objects: map[string]int64{}, Created: e.System.Created(), Calls: e.Gate.Calls(), Violations: e.Book.Record()}
	for _, o := range objects {
		v.Objects[o.Kind]++
	}
	return v, nil
}

func (a *adminAPI) list(w http.ResponseWriter, _ *http.Request) {
	views := []systemView{}
	for _, e := range a.entries {
		v, err := view(e)
		if err != nil {
			contract.Error(w, http.StatusInternalServerError, "%v", err)
			return
		}
		views = append(views, v)
	}
	contract.JSON(w, http.StatusOK, page(views, len(views)))
}

func page[T any](data []T, total int) map[string]any {
	return map[string]any{"data": data, "count": len(data), "totalCount": total}
}

func (a *adminAPI) get(w http.ResponseWriter, _ *http.Request, e entry) {
	v, err := view(e)
	contract.Reply(w, err, http.StatusOK, v)
}

func (a *adminAPI) set(w http.ResponseWriter, r *http.Request, e entry) {
	var s fault.Settings
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, contract.MaxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		contract.Error(w, http.StatusBadRequest,
			"%v; allowed are latencyMs (0 to 600000), errorRate (0 to 1), errorStatus (400 to 599), errorAfter, outage and timeout (true or false)", err)
		return
	}
	if err := s.Validate(); err != nil {
		contract.Error(w, http.StatusBadRequest, "%v", err)
		return
	}
	a.put(w, r, e, s)
}

func (a *adminAPI) reset(w http.ResponseWriter, r *http.Request, e entry) {
	a.put(w, r, e, fault.Settings{})
}

func (a *adminAPI) clear(w http.ResponseWriter, r *http.Request, e entry) {
	e.Book.Clear()
	a.get(w, r, e)
}

func (a *adminAPI) put(w http.ResponseWriter, r *http.Request, e entry, s fault.Settings) {
	err := a.store.Update(func(tx *journal.Tx) error { return a.settings.Put(tx, e.Name, s) })
	if err != nil {
		contract.Error(w, http.StatusInternalServerError, "%v", err)
		return
	}
	e.Gate.Set(s)
	a.get(w, r, e)
}

func (a *adminAPI) failures(w http.ResponseWriter, r *http.Request, e entry) {
	failing, ok := e.System.(withFailures)
	if !ok {
		var names []string
		for _, e := range a.entries {
			if _, ok := e.System.(withFailures); ok {
				names = append(names, e.Name)
			}
		}
		contract.Error(w, http.StatusBadRequest, "system %s has no failures, use %s", e.Name, strings.Join(names, " or "))
		return
	}
	failing.Failures(w, r)
}

func (a *adminAPI) kubeconfigs(w http.ResponseWriter, r *http.Request, e entry) {
	lending, ok := e.System.(withKubeconfigs)
	if !ok {
		contract.Error(w, http.StatusBadRequest, "system %s has no kubeconfigs, use provisioner", e.Name)
		return
	}
	lending.Kubeconfigs(w, r)
}

func (a *adminAPI) events(w http.ResponseWriter, r *http.Request, e entry) {
	telling, ok := e.System.(withEvents)
	if !ok {
		contract.Error(w, http.StatusBadRequest, "system %s tells no events, use cis", e.Name)
		return
	}
	telling.Events(w, r)
}

// objects lists the data of a system, filtered by kind and by a contained text, in pages by limit and offset.
func (a *adminAPI) objects(w http.ResponseWriter, r *http.Request, e entry) {
	q := r.URL.Query()
	bounds := map[string]int{"limit": 0, "offset": 0}
	for key := range q {
		switch key {
		case "kind", "contains":
		case "limit", "offset":
			n, err := strconv.Atoi(q.Get(key))
			if err != nil || n < 0 {
				contract.Error(w, http.StatusBadRequest, "%s: %q is not a number from 0", key, q.Get(key))
				return
			}
			bounds[key] = n
		default:
			contract.Error(w, http.StatusBadRequest, "unknown query parameter %q, allowed are kind, contains, limit, offset", key)
			return
		}
	}
	all, err := e.System.Objects()
	if err != nil {
		contract.Error(w, http.StatusInternalServerError, "%v", err)
		return
	}
	all = slices.DeleteFunc(all, func(o journal.Object) bool {
		if q.Has("kind") && o.Kind != q.Get("kind") {
			return true
		}
		return !strings.Contains(o.ID, q.Get("contains")) && !strings.Contains(string(o.Data), q.Get("contains"))
	})
	total := len(all)
	all = all[min(bounds["offset"], total):]
	if limit := bounds["limit"]; limit > 0 {
		all = all[:min(limit, len(all))]
	}
	data := make([]map[string]any, 0, len(all))
	for _, o := range all {
		shown, err := show(o)
		if err != nil {
			contract.Error(w, http.StatusInternalServerError, "%v", err)
			return
		}
		data = append(data, shown)
	}
	contract.JSON(w, http.StatusOK, page(data, total))
}

// show returns an object's members with kind and id, which override members of the same name.
func show(o journal.Object) (map[string]any, error) {
	var body map[string]any
	if err := json.Unmarshal(o.Data, &body); err != nil {
		return nil, fmt.Errorf("show %s %s: %w", o.Kind, o.ID, err)
	}
	redact(body)
	body["kind"], body["id"] = o.Kind, o.ID
	return body, nil
}
