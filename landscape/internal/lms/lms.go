// Package lms simulates the Logging as a Service of Kyma 1: tenants, and the certificates with which Fluent Bit of a runtime
// authenticates (docs/contracts/lms.md).
package lms

import (
	"crypto/rsa"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// Name is the name of the system and the first part of its paths.
const Name = "lms"

// Config contains the credentials and the durations.
type Config struct {
	Token string // of the header X-LMS-Token
	// ReadyTime is the creation time of a tenant, SignTime the signing time of a certificate.
	ReadyTime time.Duration
	SignTime  time.Duration
	// ExternalURL is the base URL of the landscape in callback URLs; "" means the host of the request.
	ExternalURL string
}

// Tenant is shared by the runtimes of one global account in one region.
type Tenant struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Region      string    `json:"region"`
	SAMLGroups  []string  `json:"samlGroups,omitempty"`
	ClusterType string    `json:"clusterType"`
	DataCenter  string    `json:"datacenter"`
	Environment string    `json:"environment"`
	Project     string    `json:"project"`
	SAMLTenant  string    `json:"samlTenant,omitempty"`
	DNS         string    `json:"dns"`
	CreatedAt   time.Time `json:"createdAt"`
}

// Certificate is a requested certificate, which is available at SignedAt.
type Certificate struct {
	ID         string    `json:"id"`
	Tenant     string    `json:"tenant"`
	CommonName string    `json:"commonName"`
	SignedAt   time.Time `json:"signedAt"`
	PEM        string    `json:"cert"`
}

// The schemas of the request bodies.
var (
	//go:embed tenant.schema.json
	tenantDocument []byte
	//go:embed certificate.schema.json
	certificateDocument []byte

	tenantSchema      = contract.MustSchema(tenantDocument)
	certificateSchema = contract.MustSchema(certificateDocument)
)

var errNotFound = errors.New("not found")

// System is the simulator.
type System struct {
	*journal.Store
	cfg          Config
	now          func() time.Time
	signer       signer
	tenants      *journal.Table[Tenant]
	certificates *journal.Table[Certificate]
	byName       journal.Index // of tenants, by name and region
}

// New opens the simulator's journal at path ("" keeps all data in memory).
func New(cfg Config, path string, now func() time.Time) (*System, error) {
	s := &System{
		cfg: cfg, now: now, tenants: journal.NewTable[Tenant]("tenant"), certificates: journal.NewTable[Certificate]("certificate"),
	}
	s.tenants.Index(&s.byName, key)
	var err error
	if s.signer, err = newSigner(); err != nil {
		return nil, err
	}
	if s.Store, err = journal.Open(path, s.tenants, s.certificates); err != nil {
		return nil, err
	}
	return s, nil
}

func key(t Tenant) string { return t.Name + "/" + t.Region }

// Handler serves the paths under /lms.
func (s *System) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /lms/tenants", s.authorized(s.create))
	mux.HandleFunc("GET /lms/tenants/{id}", s.authorized(s.get))
	mux.HandleFunc("GET /lms/tenants/{id}/status", s.authorized(s.status))
	mux.HandleFunc("POST /lms/tenants/{id}/certs", s.authorized(s.sign))
	mux.HandleFunc("GET /lms/tenants/{id}/certs/ca", s.authorized(s.ca))
	mux.HandleFunc("GET /lms/{callback}", s.authorized(s.callback))
	return mux
}

// fail answers in the format of docs/contracts/lms.md.
func fail(w http.ResponseWriter, status int, message string) {
	contract.JSON(w, status, map[string]string{"message": message, "error": http.StatusText(status)})
}

func (s *System) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !contract.SameSecret(r.Header.Get("X-LMS-Token"), s.cfg.Token) {
			contract.Violation(r, "header X-LMS-Token: missing or wrong")
			fail(w, http.StatusUnauthorized, "missing or wrong X-LMS-Token")
			return
		}
		next(w, r)
	}
}

// create returns the id of the tenant with that name and region, and creates the tenant if it is missing. That a repeated POST returns the
// same id is an assumption: the API has no list, so a client that crashed before it saved the id needs another way to
// get it.
func (s *System) create(w http.ResponseWriter, r *http.Request) {
	body, err := tenantSchema.Body(r, contract.MaxBody)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	var t Tenant
	if err := json.Unmarshal(body, &t); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	err = s.Update(func(tx *journal.Tx) error {
		if ids := s.byName.IDs(key(t)); len(ids) > 0 {
			t.ID = ids[0]
			return nil
		}
		t.ID, t.CreatedAt = uuid.NewString(), s.now()
		t.DNS = "t" + strconv.FormatInt(tx.Next(), 10) + "." + t.Region + ".lms.example.com"
		return s.tenants.Put(tx, t.ID, t)
	})
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	contract.JSON(w, http.StatusOK, map[string]string{"id": t.ID})
}

// tenant returns the tenant of the path. If there is none, it answers the request.
func (s *System) tenant(w http.ResponseWriter, r *http.Request) (Tenant, bool) {
	var t Tenant
	var ok bool
	s.View(func() { t, ok = s.tenants.Get(r.PathValue("id")) })
	if !ok {
		fail(w, http.StatusNotFound, "tenant not found")
	}
	return t, ok
}

func (s *System) get(w http.ResponseWriter, r *http.Request) {
	if t, ok := s.tenant(w, r); ok {
		contract.JSON(w, http.StatusOK, map[string]string{"id": t.ID, "dns": t.DNS})
	}
}

func (s *System) ready(t Tenant) bool { return !s.now().Before(t.CreatedAt.Add(s.cfg.ReadyTime)) }

func (s *System) status(w http.ResponseWriter, r *http.Request) {
	t, ok := s.tenant(w, r)
	if !ok {
		return
	}
	ready, state := s.ready(t), "yellow"
	if ready {
		state = "green"
	}
	contract.JSON(w, http.StatusOK, map[string]any{"kibanaDNSResolves": ready, "elasticsearchDNSResolves": ready, "kibanaState": state})
}

// sign requests a certificate. That the same CSR gets the same certificate is an assumption, as for the tenants.
func (s *System) sign(w http.ResponseWriter, r *http.Request) {
	t, ok := s.tenant(w, r)
	if !ok {
		return
	}
	raw, err := certificateSchema.Body(r, contract.MaxBody)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	var body struct {
		CSR string `json:"csr"`
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	if !s.ready(t) {
		fail(w, http.StatusConflict, "the tenant is not ready")
		return
	}
	c, err := s.signer.sign(body.CSR, s.now())
	if err != nil {
		contract.Violation(r, "%v", err)
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	c.ID = uuid.NewSHA1(uuid.NameSpaceOID, []byte(t.ID+body.CSR)).String()
	c.Tenant, c.SignedAt = t.ID, s.now().Add(s.cfg.SignTime)
	err = s.Update(func(tx *journal.Tx) error {
		if _, ok := s.certificates.Get(c.ID); ok {
			return nil
		}
		return s.certificates.Put(tx, c.ID, c)
	})
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	base := s.cfg.ExternalURL
	if base == "" {
		base = contract.BaseURL(r)
	}
	contract.JSON(w, http.StatusOK, map[string]string{"callbackUrl": base + "/lms/cert-" + c.ID})
}

func (s *System) callback(w http.ResponseWriter, r *http.Request) {
	id, _ := strings.CutPrefix(r.PathValue("callback"), "cert-")
	var c Certificate
	var ok bool
	s.View(func() { c, ok = s.certificates.Get(id) })
	if !ok || s.now().Before(c.SignedAt) {
		fail(w, http.StatusNotFound, errNotFound.Error())
		return
	}
	contract.JSON(w, http.StatusOK, map[string]string{"cert": c.PEM})
}

func (s *System) ca(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.tenant(w, r); ok {
		contract.JSON(w, http.StatusOK, map[string]string{"cert": s.signer.ca})
	}
}

func encode(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// request decodes a CSR and verifies its signature.
func request(text string) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("csr must be a PEM block CERTIFICATE REQUEST")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, errors.New("csr cannot be read")
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, errors.New("csr is not signed with its key")
	}
	if key, ok := csr.PublicKey.(*rsa.PublicKey); !ok || key.N.BitLen() != 2048 || csr.SignatureAlgorithm != x509.SHA256WithRSA {
		return nil, errors.New("csr: must be of an RSA key with 2048 bits, signed with SHA256WithRSA")
	}
	subject := csr.Subject
	if subject.CommonName != "fluentbit" || len(subject.Organization) != 1 || len(subject.OrganizationalUnit) != 1 {
		return nil, errors.New("csr: the subject must be CN fluentbit with one O and one OU")
	}
	if _, err := uuid.Parse(subject.OrganizationalUnit[0]); err != nil {
		return nil, errors.New("csr: OU must be a UUID")
	}
	return csr, nil
}
