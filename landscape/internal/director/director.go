// Package director simulates the Director of Compass: runtimes and their labels (docs/contracts/director.md).
package director

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/graphql"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// Name is the name of the system and the first part of its paths.
const Name = "director"

//go:embed schema.graphql
var schema string

// Config contains the credentials and options.
type Config struct {
	ClientID string
	Secret   string
	// LookUp enables the query runtimes(filter), which is not part of the contract between the real Director and KEB.
	LookUp bool
}

// Runtime is a registered runtime. The value of a label can be any JSON.
type Runtime struct {
	ID          string         `json:"id"`
	Tenant      string         `json:"tenant"`
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Labels      map[string]any `json:"labels"`
}

// System is the simulator.
type System struct {
	*journal.Store
	cfg      Config
	tokens   *contract.Issuer
	runtimes *journal.Table[Runtime]
	byLabel  journal.Index // by "key=JSON value"
	graph    *graphql.Server
}

// New opens the simulator's journal at path ("" keeps all data in memory).
func New(cfg Config, path string, now func() time.Time) (*System, error) {
	s := &System{
		cfg: cfg, tokens: contract.NewIssuer(Name, cfg.Secret, now), runtimes: journal.NewTable[Runtime]("runtime"),
	}
	s.runtimes.OnChange(s.index)
	var err error
	if s.Store, err = journal.Open(path, s.runtimes); err != nil {
		return nil, err
	}
	s.graph, err = graphql.New("/director/graphql", schema, map[string]graphql.Resolver{
		"runtimes": s.list, "runtime": s.get, "setRuntimeLabel": s.setLabel,
	})
	return s, err
}

func (s *System) index(id string, r Runtime, gone bool) {
	var keys []string
	for k, v := range r.Labels {
		keys = append(keys, labelKey(k, v))
	}
	if gone {
		keys = nil
	}
	s.byLabel.Set(id, keys...)
}

func labelKey(key string, value any) string {
	raw, err := json.Marshal(value)
	if err != nil {
		return key + "="
	}
	return key + "=" + string(raw)
}

// Handler serves the token endpoint and the GraphQL endpoint.
func (s *System) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /director/oauth2/token", s.token)
	mux.HandleFunc("/director/graphql", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.tokens.Subject(r); !ok {
			contract.RefuseToken(w, http.StatusUnauthorized, "invalid_token", "missing, wrong or expired token")
			return
		}
		s.graph.ServeHTTP(w, r)
	})
	return mux
}

// scope is the scope of a client's token request.
const scope = "runtime:read runtime:write"

func (s *System) token(w http.ResponseWriter, r *http.Request) {
	client, secret, ok := contract.TokenRequest(w, r, "client_credentials", "scope")
	if !ok {
		return
	}
	if r.PostFormValue("scope") != scope {
		contract.Violation(r, "form: scope must be %s", scope)
		contract.RefuseToken(w, http.StatusBadRequest, "invalid_scope", "scope must be "+scope)
		return
	}
	if client != s.cfg.ClientID || !contract.SameSecret(secret, s.cfg.Secret) {
		contract.RefuseToken(w, http.StatusUnauthorized, "invalid_client", "wrong client id or secret")
		return
	}
	s.tokens.Write(w, client, scope)
}

// Register adds a runtime like its agent. It is idempotent.
func (s *System) Register(r Runtime) error {
	return s.Update(func(tx *journal.Tx) error {
		if _, ok := s.runtimes.Get(r.ID); ok {
			return nil
		}
		return s.runtimes.Put(tx, r.ID, r)
	})
}

// Unregister removes a runtime. An unknown one is not an error.
func (s *System) Unregister(id string) error {
	return s.Update(func(tx *journal.Tx) error { return s.runtimes.Delete(tx, id) })
}

func notFound(id string) error {
	return &graphql.Error{
		Message:    fmt.Sprintf("Object not found [object=runtime, id=%s]", id),
		Extensions: map[string]any{"error": "NotFound", "error_code": 20},
	}
}

func tenantOf(r *http.Request) (string, error) {
	tenant := r.Header.Get("Tenant")
	if tenant == "" {
		contract.Violation(r, "header tenant: required")
		return "", &graphql.Error{Message: "Tenant is required", Extensions: map[string]any{"error": "TenantRequired", "error_code": 23}}
	}
	return tenant, nil
}

// labelFilter selects a label, and its value if there is a query: the value's JSON form, so a text has quotes.
type labelFilter struct {
	Key   string  `json:"key"`
	Query *string `json:"query"`
}

func (s *System) list(_ context.Context, r *http.Request, args graphql.Arguments) (any, error) {
	if !s.cfg.LookUp {
		contract.Violation(r, "runtimes: the look-up is switched off")
		return nil, &graphql.Error{Message: "runtimes is not served", Extensions: map[string]any{"error": "NotFound", "error_code": 20}}
	}
	tenant, err := tenantOf(r)
	if err != nil {
		return nil, err
	}
	var in struct {
		Filter []labelFilter `json:"filter"`
		First  int           `json:"first"`
		After  string        `json:"after"`
	}
	if err := args.Into(&in); err != nil {
		return nil, err
	}
	found := []Runtime{}
	s.View(func() {
		for _, id := range s.candidates(in.Filter) {
			runtime, _ := s.runtimes.Get(id)
			if runtime.Tenant != tenant {
				continue
			}
			fits := true
			for _, f := range in.Filter {
				value, has := runtime.Labels[f.Key]
				fits = fits && has && (f.Query == nil || labelKey(f.Key, value) == f.Key+"="+*f.Query)
			}
			if fits {
				found = append(found, runtime)
			}
		}
	})
	total := len(found)
	page := []Runtime{}
	for _, runtime := range found {
		if runtime.ID > in.After && len(page) < in.First {
			page = append(page, runtime)
		}
	}
	end := ""
	if len(page) > 0 {
		end = page[len(page)-1].ID
	}
	more := total > 0 && end != "" && found[total-1].ID > end
	return map[string]any{
		"data": page, "totalCount": total,
		"pageInfo": map[string]any{"startCursor": in.After, "endCursor": end, "hasNextPage": more},
	}, nil
}

// candidates returns the runtimes with the label of the first filter, or all of them, in order.
func (s *System) candidates(filter []labelFilter) []string {
	if len(filter) > 0 && filter[0].Query != nil {
		return s.byLabel.IDs(filter[0].Key + "=" + *filter[0].Query)
	}
	return s.runtimes.Sorted()
}

func (s *System) get(_ context.Context, r *http.Request, args graphql.Arguments) (any, error) {
	tenant, err := tenantOf(r)
	if err != nil {
		return nil, err
	}
	id, _ := args["id"].(string)
	var runtime Runtime
	var ok bool
	s.View(func() { runtime, ok = s.runtimes.Get(id) })
	if !ok || runtime.Tenant != tenant {
		return nil, notFound(id)
	}
	return runtime, nil
}

func (s *System) setLabel(_ context.Context, r *http.Request, args graphql.Arguments) (any, error) {
	tenant, err := tenantOf(r)
	if err != nil {
		return nil, err
	}
	id, _ := args["runtimeID"].(string)
	key, _ := args["key"].(string)
	err = s.Update(func(tx *journal.Tx) error {
		runtime, ok := s.runtimes.Get(id)
		if !ok || runtime.Tenant != tenant {
			return notFound(id)
		}
		runtime.Labels = maps.Clone(runtime.Labels)
		if runtime.Labels == nil {
			runtime.Labels = map[string]any{}
		}
		runtime.Labels[key] = args["value"]
		return s.runtimes.Put(tx, id, runtime)
	})
	return map[string]any{"key": key, "value": args["value"]}, err
}
