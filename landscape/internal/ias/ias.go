// Package ias simulates SAP Cloud Identity: service providers and identity providers (docs/contracts/ias.md).
package ias

import (
	"crypto/rand"
	_ "embed" // schemas of the requests
	"encoding/json"
	"maps"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// Name is the name of the system and the first part of its paths.
const Name = "ias"

// Config contains the credentials of the technical user (basic authentication), and the identity providers of the company.
type Config struct {
	Username string
	Password string
}

// Provider is a service provider. Settings contains the configured settings by their JSON names.
type Provider struct {
	ID          string                     `json:"id"`
	Name        string                     `json:"name"`
	CompanyID   string                     `json:"company_id"`
	RESTAPIUser string                     `json:"user_for_rest_api,omitempty"`
	Secrets     []Secret                   `json:"clientSecrets,omitempty"`
	Settings    map[string]json.RawMessage `json:"settings,omitempty"`
}

// Secret is a client secret of a service provider. Its value is returned only when it is created.
type Secret struct {
	ID string `json:"id"`
}

// The schemas of the request bodies.
var (
	//go:embed provider.json
	providerDocument []byte
	//go:embed providers.json
	providersDocument []byte
	//go:embed rba.json
	rbaDocument []byte
	//go:embed secret.json
	secretDocument []byte

	providerSchema  = contract.MustSchema(providerDocument)
	providersSchema = contract.MustSchema(providersDocument)
	rbaSchema       = contract.MustSchema(rbaDocument)
	secretSchema    = contract.MustSchema(secretDocument)
)

var errNotFound = &contract.StatusError{Status: http.StatusNotFound, Message: "service provider not found"}

// System is the simulator.
type System struct {
	*journal.Store
	cfg       Config
	providers *journal.Table[Provider]
}

// New opens the simulator's journal at path ("" keeps all data in memory).
func New(cfg Config, path string) (*System, error) {
	providers := journal.NewTable[Provider]("serviceProvider")
	store, err := journal.Open(path, providers)
	if err != nil {
		return nil, err
	}
	return &System{Store: store, cfg: cfg, providers: providers}, nil
}

// Handler serves the paths under /ias.
func (s *System) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ias/service/company/global", s.authorized(s.company))
	mux.HandleFunc("POST /ias/service/sps", s.authorized(s.create))
	mux.HandleFunc("PUT /ias/service/sps", s.authorized(s.configureByBody))
	mux.HandleFunc("PUT /ias/service/sps/{id}", s.authorized(s.configure(providerSchema)))
	mux.HandleFunc("PUT /ias/service/sps/{id}/rba", s.authorized(s.configure(rbaSchema)))
	mux.HandleFunc("PUT /ias/service/sps/delete", s.authorized(s.delete))
	mux.HandleFunc("DELETE /ias/service/sps/clientSecret", s.authorized(s.deleteSecret))
	return mux
}

func (s *System) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := r.BasicAuth()
		if !ok || user != s.cfg.Username || !contract.SameSecret(password, s.cfg.Password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="ias"`)
			contract.Error(w, http.StatusUnauthorized, "missing or wrong user and password")
			return
		}
		var parameters []string
		if r.URL.Path == "/ias/service/sps/delete" {
			parameters = []string{"sp_id"}
		}
		if err := contract.Query(r, parameters...); err != nil {
			contract.Error(w, http.StatusBadRequest, "%v", err)
			return
		}
		next(w, r)
	}
}

func (s *System) company(w http.ResponseWriter, _ *http.Request) {
	list := []map[string]any{}
	s.View(func() {
		for _, id := range s.providers.Sorted() {
			p, _ := s.providers.Get(id)
			secrets := []map[string]any{}
			for _, secret := range p.Secrets {
				secrets = append(secrets, map[string]any{
					"clientSecretId": secret.ID, "description": "SAP Kyma Runtime Secret", "scopes": []string{"ManageApp", "ManageUsers", "OAuth"},
				})
			}
			shown := map[string]any{
				"id": p.ID, "display_name": p.Name, "organization": p.CompanyID, "userForRest": p.RESTAPIUser, "clientSecrets": secrets,
			}
			for _, name := range []string{"assertion_attributes", "ssoType", "rba_config"} {
				if value, ok := p.Settings[name]; ok {
					shown[name] = value
				}
			}
			list = append(list, shown)
		}
	})
	identity := []map[string]string{{"id": "sap-id", "name": "SAP"}}
	contract.JSON(w, http.StatusOK, map[string]any{"service_providers": list, "identity_providers": identity})
}

func (s *System) create(w http.ResponseWriter, r *http.Request) {
	if err := contract.ContentType(r, "application/x-www-form-urlencoded"); err != nil {
		contract.Error(w, http.StatusBadRequest, "%v", err)
		return
	}
	p := Provider{ID: uuid.NewString(), Name: r.PostFormValue("sp_name"), CompanyID: r.PostFormValue("company_id")}
	if p.Name == "" || p.CompanyID != "global" || len(r.PostForm) != 2 {
		contract.Violation(r, "form: must be sp_name and company_id, which is global")
		contract.Error(w, http.StatusBadRequest, "sp_name must not be empty and company_id must be global")
		return
	}
	err := s.Update(func(tx *journal.Tx) error { return s.providers.Put(tx, p.ID, p) })
	contract.Reply(w, err, http.StatusCreated, map[string]string{"id": p.ID})
}

// configure stores the members of the body in the provider of the path.
func (s *System) configure(schema *contract.Schema) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in map[string]json.RawMessage
		if !schema.Read(w, r, &in) {
			return
		}
		if rules, ok := in["service_provider"]; ok {
			if err := json.Unmarshal(rules, &in); err != nil {
				contract.Error(w, http.StatusBadRequest, "%v", err)
				return
			}
			delete(in, "service_provider")
		}
		contract.Reply(w, s.change(r.PathValue("id"), in, nil), http.StatusNoContent, nil)
	}
}

// configureByBody handles calls with the provider's id in the body: a default identity provider, or a new client secret.
func (s *System) configureByBody(w http.ResponseWriter, r *http.Request) {
	var in map[string]json.RawMessage
	if !providersSchema.Read(w, r, &in) {
		return
	}
	var id string
	if err := json.Unmarshal(in["id"], &id); err != nil || id == "" {
		contract.Error(w, http.StatusBadRequest, "id must be the service provider's id")
		return
	}
	if _, ok := in["rest_api_client_secret"]; !ok {
		delete(in, "id")
		contract.Reply(w, s.change(id, in, nil), http.StatusNoContent, nil)
		return
	}
	secret := rand.Text()
	var user string
	err := s.change(id, nil, func(p *Provider) {
		if p.RESTAPIUser == "" {
			p.RESTAPIUser = "rest-" + p.ID
		}
		user = p.RESTAPIUser
		p.Secrets = append(slices.Clone(p.Secrets), Secret{ID: uuid.NewString()})
	})
	contract.Reply(w, err, http.StatusOK, map[string]string{"clientId": user, "clientSecret": secret})
}

func (s *System) change(id string, settings map[string]json.RawMessage, f func(*Provider)) error {
	return s.Update(func(tx *journal.Tx) error {
		p, ok := s.providers.Get(id)
		if !ok {
			return errNotFound
		}
		merged := map[string]json.RawMessage{}
		for _, from := range []map[string]json.RawMessage{p.Settings, settings} {
			maps.Copy(merged, from)
		}
		p.Settings = merged
		if f != nil {
			f(&p)
		}
		return s.providers.Put(tx, id, p)
	})
}

func (s *System) delete(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("sp_id")
	if id == "" {
		contract.Violation(r, "query parameter sp_id: required")
	}
	err := s.Update(func(tx *journal.Tx) error {
		if _, ok := s.providers.Get(id); !ok {
			return errNotFound
		}
		return s.providers.Delete(tx, id)
	})
	contract.Reply(w, err, http.StatusOK, nil)
}

func (s *System) deleteSecret(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ClientID string   `json:"clientId"`
		Secrets  []string `json:"clientSecretsIds"`
	}
	if !secretSchema.Read(w, r, &in) {
		return
	}
	var id string
	s.View(func() {
		for _, p := range s.providers.All() {
			if p.RESTAPIUser != "" && p.RESTAPIUser == in.ClientID {
				id = p.ID
			}
		}
	})
	err := s.change(id, nil, func(p *Provider) {
		p.Secrets = slices.DeleteFunc(slices.Clone(p.Secrets), func(s Secret) bool { return slices.Contains(in.Secrets, s.ID) })
	})
	contract.Reply(w, err, http.StatusOK, nil)
}
