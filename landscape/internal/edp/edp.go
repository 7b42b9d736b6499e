// Package edp simulates the Event Data Platform: data tenants and their metadata (docs/contracts/edp.md).
package edp

import (
	_ "embed" // schemas of the requests
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// Name is the name of the system and the first part of its paths.
const Name = "edp"

// Config contains the credentials.
type Config struct {
	Secret string // of every client "edp-namespace;<namespace>"
}

// Tenant is a data tenant.
type Tenant struct {
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	Environment string `json:"environment"`
	Secret      string `json:"secret"`
}

// Metadata is a metadata entry of a data tenant.
type Metadata struct {
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	Environment string `json:"environment"`
	Key         string `json:"key"`
	Value       string `json:"value"`
}

// The schemas of the request bodies.
var (
	//go:embed tenant.json
	tenantDocument []byte
	//go:embed metadata.json
	metadataDocument []byte

	tenantSchema   = contract.MustSchema(tenantDocument)
	metadataSchema = contract.MustSchema(metadataDocument)
)

var (
	errNotFound = &contract.StatusError{Status: http.StatusNotFound, Message: "not found"}
	errExists   = &contract.StatusError{Status: http.StatusConflict, Message: "exists already"}
)

// System is the simulator.
type System struct {
	*journal.Store
	cfg      Config
	tokens   *contract.Issuer
	tenants  *journal.Table[Tenant]
	metadata *journal.Table[Metadata]
	byTenant journal.Index // of metadata
}

// New opens the simulator's journal at path ("" keeps all data in memory).
func New(cfg Config, path string, now func() time.Time) (*System, error) {
	s := &System{
		cfg: cfg, tokens: contract.NewIssuer(Name, cfg.Secret, now),
		tenants: journal.NewTable[Tenant]("dataTenant"), metadata: journal.NewTable[Metadata]("metadata"),
	}
	s.metadata.Index(&s.byTenant, func(m Metadata) string { return m.Namespace + "/" + m.Name + "/" + m.Environment })
	store, err := journal.Open(path, s.tenants, s.metadata)
	if err != nil {
		return nil, err
	}
	s.Store = store
	return s, nil
}

// Handler serves the paths under /edp.
func (s *System) Handler() http.Handler {
	const tenants = "/edp/namespaces/{namespace}/dataTenants"
	mux := http.NewServeMux()
	mux.HandleFunc("POST /edp/oauth2/token", s.token)
	mux.HandleFunc("POST "+tenants, s.authorized(s.createTenant))
	mux.HandleFunc("DELETE "+tenants+"/{name}/{environment}", s.authorized(s.deleteTenant))
	mux.HandleFunc("POST "+tenants+"/{name}/{environment}/metadata", s.authorized(s.createMetadata))
	mux.HandleFunc("DELETE "+tenants+"/{name}/{environment}/metadata/{key}", s.authorized(s.deleteMetadata))
	return mux
}

const (
	clientPrefix = "edp-namespace;"
	scope        = "edp-namespace.read edp-namespace.update"
)

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
	namespace, isNamespace := strings.CutPrefix(client, clientPrefix)
	if !isNamespace || namespace == "" || !contract.SameSecret(secret, s.cfg.Secret) {
		contract.RefuseToken(w, http.StatusUnauthorized, "invalid_client", "the client must be edp-namespace;<namespace> with its secret")
		return
	}
	s.tokens.Write(w, namespace, scope)
}

func (s *System) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		namespace, ok := s.tokens.Subject(r)
		switch {
		case !ok:
			contract.Error(w, http.StatusUnauthorized, "missing, wrong or expired token")
		case namespace != r.PathValue("namespace"):
			contract.Error(w, http.StatusForbidden, "the token is for namespace %s", namespace)
		default:
			if err := contract.Query(r); err != nil {
				contract.Error(w, http.StatusBadRequest, "%v", err)
				return
			}
			next(w, r)
		}
	}
}

func tenantKey(r *http.Request) string {
	return r.PathValue("namespace") + "/" + r.PathValue("name") + "/" + r.PathValue("environment")
}

func (s *System) createTenant(w http.ResponseWriter, r *http.Request) {
	var t Tenant
	if !tenantSchema.Read(w, r, &t) {
		return
	}
	if t.Secret != base64.StdEncoding.EncodeToString([]byte(t.Name+t.Environment)) {
		contract.Violation(r, "secret: must be base64 of name and environment")
		contract.Error(w, http.StatusBadRequest, "secret does not fit")
		return
	}
	t.Namespace = r.PathValue("namespace")
	key := t.Namespace + "/" + t.Name + "/" + t.Environment
	err := s.Update(func(tx *journal.Tx) error {
		if _, ok := s.tenants.Get(key); ok {
			return errExists
		}
		return s.tenants.Put(tx, key, t)
	})
	contract.Reply(w, err, http.StatusCreated, map[string]any{"name": t.Name, "environment": t.Environment, "namespace": map[string]string{"name": t.Namespace}})
}

func (s *System) deleteTenant(w http.ResponseWriter, r *http.Request) {
	key := tenantKey(r)
	err := s.Update(func(tx *journal.Tx) error {
		if _, ok := s.tenants.Get(key); !ok {
			return errNotFound
		}
		for _, id := range s.byTenant.IDs(key) {
			if err := s.metadata.Delete(tx, id); err != nil {
				return err
			}
		}
		return s.tenants.Delete(tx, key)
	})
	contract.Reply(w, err, http.StatusNoContent, nil)
}

func (s *System) createMetadata(w http.ResponseWriter, r *http.Request) {
	var m Metadata
	if !metadataSchema.Read(w, r, &m) {
		return
	}
	if m.Key == "maasConsumerSubAccount" && m.Value != r.PathValue("name") {
		contract.Violation(r, "value: maasConsumerSubAccount must be the name of the data tenant")
		contract.Error(w, http.StatusBadRequest, "the subaccount does not fit the data tenant")
		return
	}
	m.Namespace, m.Name, m.Environment = r.PathValue("namespace"), r.PathValue("name"), r.PathValue("environment")
	tenant := tenantKey(r)
	err := s.Update(func(tx *journal.Tx) error {
		if _, ok := s.tenants.Get(tenant); !ok {
			return errNotFound
		}
		if _, ok := s.metadata.Get(tenant + "/" + m.Key); ok {
			return errExists
		}
		return s.metadata.Put(tx, tenant+"/"+m.Key, m)
	})
	contract.Reply(w, err, http.StatusCreated, shown(m))
}

// shown returns the format of docs/contracts/edp.md#calls, with the nested tenant.
func shown(m Metadata) map[string]any {
	tenant := map[string]any{"namespace": map[string]string{"name": m.Namespace}, "name": m.Name, "environment": m.Environment}
	return map[string]any{"dataTenant": tenant, "key": m.Key, "value": m.Value}
}

func (s *System) deleteMetadata(w http.ResponseWriter, r *http.Request) {
	key := tenantKey(r) + "/" + r.PathValue("key")
	err := s.Update(func(tx *journal.Tx) error {
		if _, ok := s.metadata.Get(key); !ok {
			return errNotFound
		}
		return s.metadata.Delete(tx, key)
	})
	contract.Reply(w, err, http.StatusNoContent, nil)
}
