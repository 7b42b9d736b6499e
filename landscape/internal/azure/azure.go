// Package azure simulates the part of the Azure Resource Manager that Kyma 1 needs: resource groups with Event Hubs namespaces and their
// keys (docs/contracts/event-hubs.md).
package azure

import (
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/journal"
)

// Name is the name of the system and the first part of its paths.
const Name = "azure"

// Config contains the credentials and the durations.
type Config struct {
	ClientID string
	Secret   string
	// CreateTime is the creation time of a namespace, DeleteTime the deletion time of a resource group. 0 means no time.
	CreateTime time.Duration
	DeleteTime time.Duration
}

// Group is a resource group. It is removed at GoneAt, unless that is nil.
type Group struct {
	Subscription string            `json:"subscription"`
	Name         string            `json:"name"`
	Location     string            `json:"location"`
	Tags         map[string]string `json:"tags,omitempty"`
	GoneAt       *time.Time        `json:"goneAt,omitempty"`
}

// Namespace is an Event Hubs namespace.
type Namespace struct {
	Group    string            `json:"group"` // subscription/name
	Name     string            `json:"name"`
	Location string            `json:"location"`
	Tags     map[string]string `json:"tags,omitempty"`
	ReadyAt  time.Time         `json:"readyAt"`
	// Key is the key of the rule RootManageSharedAccessKey.
	Key string `json:"sharedAccessSecretKey"`
}

// System is the simulator.
type System struct {
	*journal.Store
	cfg        Config
	now        func() time.Time
	tokens     *contract.Issuer
	groups     *journal.Table[Group]
	namespaces *journal.Table[Namespace]
	byGroup    journal.Index // of namespaces
	due        journal.Queue
}

// New opens the simulator's journal at path ("" keeps all data in memory).
func New(cfg Config, path string, now func() time.Time) (*System, error) {
	s := &System{
		cfg: cfg, now: now, tokens: contract.NewIssuer(Name, cfg.Secret, now),
		groups: journal.NewTable[Group]("resourceGroup"), namespaces: journal.NewTable[Namespace]("namespace"),
	}
	s.groups.OnChange(func(id string, g Group, gone bool) {
		if !gone && g.GoneAt != nil {
			s.due.Add(*g.GoneAt, id)
		}
	})
	s.namespaces.Index(&s.byGroup, func(n Namespace) string { return n.Group })
	var err error
	if s.Store, err = journal.Open(path, s.groups, s.namespaces); err != nil {
		return nil, err
	}
	return s, nil
}

// Handler serves the paths under /azure: the login and the management API.
func (s *System) Handler() http.Handler {
	const (
		groups     = "/azure/subscriptions/{subscription}/resourcegroups"
		namespaces = groups + "/{group}/providers/Microsoft.EventHub/namespaces/{namespace}"
	)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /azure/{tenant}/oauth2/token", s.token)
	mux.HandleFunc("GET "+groups, s.authorized(s.list))
	mux.HandleFunc("GET "+groups+"/{group}", s.authorized(s.getGroup))
	mux.HandleFunc("PUT "+groups+"/{group}", s.authorized(s.putGroup))
	mux.HandleFunc("DELETE "+groups+"/{group}", s.authorized(s.deleteGroup))
	mux.HandleFunc("GET /azure/subscriptions/{subscription}/operationresults/{group}", s.authorized(s.operationResult))
	mux.HandleFunc("GET "+namespaces, s.authorized(s.getNamespace))
	mux.HandleFunc("PUT "+namespaces, s.authorized(s.putNamespace))
	mux.HandleFunc("POST "+namespaces+"/authorizationRules/{rule}/listKeys", s.authorized(s.keys))
	return mux
}

// Objects lists the current data of the system.
func (s *System) Objects() ([]journal.Object, error) {
	if err := s.settle(); err != nil {
		return nil, err
	}
	return s.Store.Objects()
}

// settle removes the resource groups whose deletion has ended.
func (s *System) settle() error {
	now := s.now()
	var ended []string
	err := s.Update(func(tx *journal.Tx) error {
		for ; s.due.Due(now); s.due.Drop() {
			_, id := s.due.Next()
			ended = append(ended, id)
		}
		for _, id := range ended {
			if g, ok := s.groups.Get(id); !ok || g.GoneAt == nil || g.GoneAt.After(now) {
				continue
			}
			for _, n := range s.byGroup.IDs(id) {
				if err := s.namespaces.Delete(tx, n); err != nil {
					return err
				}
			}
			if err := s.groups.Delete(tx, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.View(func() {
			for _, id := range ended {
				s.due.Add(now, id)
			}
		})
	}
	return err
}

// problem is an error of the Resource Manager.
type problem struct {
	status        int
	code, message string
}

func (p *problem) Error() string { return p.code + ": " + p.message }

func notFound(what, name string) error {
	return &problem{http.StatusNotFound, what + "NotFound", what + " '" + name + "' could not be found."}
}

func badRequest(format string, args ...any) error {
	return &problem{http.StatusBadRequest, "InvalidRequest", fmt.Sprintf(format, args...)}
}

// broken rejects a request that violates the contract, and records the violation.
func broken(r *http.Request, problem string) error {
	contract.Violation(r, "%s", problem)
	return badRequest("%s", problem)
}

func fail(w http.ResponseWriter, err error) {
	p, ok := errors.AsType[*problem](err)
	if !ok {
		p = &problem{http.StatusInternalServerError, "InternalServerError", err.Error()}
	}
	contract.JSON(w, p.status, map[string]any{"error": map[string]string{"code": p.code, "message": p.message}})
}

func (s *System) token(w http.ResponseWriter, r *http.Request) {
	client, secret, _ := contract.ClientCredentials(r)
	switch {
	case r.PostFormValue("grant_type") != "client_credentials":
		contract.Violation(r, "form: grant_type must be client_credentials")
		contract.RefuseToken(w, http.StatusBadRequest, "unsupported_grant_type", "grant_type must be client_credentials")
	case r.URL.Query().Get("api-version") != "1.0":
		contract.Violation(r, "query parameter api-version: must be 1.0")
		contract.RefuseToken(w, http.StatusBadRequest, "invalid_request", "api-version must be 1.0")
	case r.PostFormValue("resource") != "https://management.azure.com/":
		contract.Violation(r, "form member resource: must be https://management.azure.com/")
		contract.RefuseToken(w, http.StatusBadRequest, "invalid_resource", "resource must be https://management.azure.com/")
	case client != s.cfg.ClientID || !contract.SameSecret(secret, s.cfg.Secret):
		contract.RefuseToken(w, http.StatusUnauthorized, "invalid_client", "unknown client or wrong secret")
	default:
		s.tokens.Write(w, client, "")
	}
}

func (s *System) authorized(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := s.tokens.Subject(r); !ok {
			fail(w, &problem{http.StatusUnauthorized, "AuthenticationFailed", "missing, wrong or expired token"})
			return
		}
		want := "2019-05-01"
		if strings.Contains(r.URL.Path, "/Microsoft.EventHub/") {
			want = "2017-04-01"
		}
		if got := r.URL.Query().Get("api-version"); got != want {
			contract.Violation(r, "query parameter api-version: must be %s", want)
			fail(w, &problem{http.StatusBadRequest, "InvalidApiVersionParameter", "the query parameter api-version must be " + want})
			return
		}
		allowed := []string{"api-version"}
		if strings.HasSuffix(r.URL.Path, "/resourcegroups") {
			allowed = append(allowed, "$filter")
		}
		if err := contract.Query(r, allowed...); err != nil {
			fail(w, badRequest("%v", err))
			return
		}
		if err := s.settle(); err != nil {
			fail(w, err)
			return
		}
		next(w, r)
	}
}

//go:embed resource.schema.json
var resourceDocument []byte

// resourceSchema is the schema of the bodies of both PUT requests.
var resourceSchema = contract.MustSchema(resourceDocument)

func read(r *http.Request, into any) error {
	if err := resourceSchema.Decode(r, into); err != nil {
		return badRequest("%v", err)
	}
	return nil
}

func groupID(r *http.Request) string {
	return r.PathValue("subscription") + "/" + strings.ToLower(r.PathValue("group"))
}

func (g Group) shown() map[string]any {
	state := "Succeeded"
	if g.GoneAt != nil {
		state = "Deleting"
	}
	return map[string]any{
		"id": "/subscriptions/" + g.Subscription + "/resourceGroups/" + g.Name, "name": g.Name, "type": "Microsoft.Resources/resourceGroups",
		"location": g.Location, "tags": g.Tags, "properties": map[string]string{"provisioningState": state},
	}
}

var tagFilter = regexp.MustCompile(`^tagName eq '((?:[^']|'')*)' and tagValue eq '((?:[^']|'')*)'$`)

func (s *System) list(w http.ResponseWriter, r *http.Request) {
	var tag, value string
	if filter := r.URL.Query().Get("$filter"); filter != "" {
		match := tagFilter.FindStringSubmatch(filter)
		if match == nil {
			fail(w, broken(r, "query parameter $filter: must be tagName eq '...' and tagValue eq '...'"))
			return
		}
		tag, value = strings.ReplaceAll(match[1], "''", "'"), strings.ReplaceAll(match[2], "''", "'")
	}
	found := []map[string]any{}
	s.View(func() {
		for _, id := range s.groups.Sorted() {
			g, _ := s.groups.Get(id)
			if has, ok := g.Tags[tag]; g.Subscription == r.PathValue("subscription") && (tag == "" || ok && has == value) {
				found = append(found, g.shown())
			}
		}
	})
	contract.JSON(w, http.StatusOK, map[string]any{"value": found})
}

func (s *System) getGroup(w http.ResponseWriter, r *http.Request) {
	var g Group
	var ok bool
	s.View(func() { g, ok = s.groups.Get(groupID(r)) })
	if !ok {
		fail(w, notFound("ResourceGroup", r.PathValue("group")))
		return
	}
	contract.JSON(w, http.StatusOK, g.shown())
}

var groupNames = regexp.MustCompile(`^[A-Za-z0-9_()-][A-Za-z0-9_().-]{0,88}[A-Za-z0-9_()-]$`)

func (s *System) putGroup(w http.ResponseWriter, r *http.Request) {
	g := Group{}
	if err := read(r, &g); err != nil {
		fail(w, err)
		return
	}
	g.Subscription, g.Name, g.GoneAt = r.PathValue("subscription"), r.PathValue("group"), nil
	if !groupNames.MatchString(g.Name) {
		fail(w, broken(r, "the name must have 2 to 90 letters, digits, _, -, (, ) and ."))
		return
	}
	status := http.StatusCreated
	err := s.Update(func(tx *journal.Tx) error {
		if old, ok := s.groups.Get(groupID(r)); ok {
			if status = http.StatusOK; old.GoneAt != nil {
				return &problem{http.StatusConflict, "ResourceGroupBeingDeleted", "the resource group is being deleted"}
			}
			if old.Location != g.Location {
				return &problem{http.StatusConflict, "InvalidResourceGroupLocation", "the resource group is in " + old.Location}
			}
		}
		return s.groups.Put(tx, groupID(r), g)
	})
	if err != nil {
		fail(w, err)
		return
	}
	contract.JSON(w, status, g.shown())
}

func (s *System) deleteGroup(w http.ResponseWriter, r *http.Request) {
	var left time.Duration
	err := s.Update(func(tx *journal.Tx) error {
		g, ok := s.groups.Get(groupID(r))
		if !ok {
			return notFound("ResourceGroup", r.PathValue("group"))
		}
		if g.GoneAt == nil {
			g.GoneAt = new(s.now().Add(s.cfg.DeleteTime))
		}
		left = g.GoneAt.Sub(s.now())
		return s.groups.Put(tx, groupID(r), g)
	})
	if err != nil {
		fail(w, err)
		return
	}
	s.later(w, r, left)
}

// later answers that a deletion is in progress, with the URL and the interval for polling.
func (s *System) later(w http.ResponseWriter, r *http.Request, left time.Duration) {
	if left <= 0 {
		w.WriteHeader(http.StatusOK)
		return
	}
	query := r.URL.Query()
	w.Header().Set("Location", contract.BaseURL(r)+"/azure/subscriptions/"+r.PathValue("subscription")+"/operationresults/"+
		r.PathValue("group")+"?api-version="+query.Get("api-version"))
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(left.Seconds()))))
	w.WriteHeader(http.StatusAccepted)
}

func (s *System) operationResult(w http.ResponseWriter, r *http.Request) {
	var left time.Duration
	s.View(func() {
		if g, ok := s.groups.Get(groupID(r)); ok && g.GoneAt != nil {
			left = g.GoneAt.Sub(s.now())
		}
	})
	s.later(w, r, left)
}

func namespaceID(r *http.Request) string {
	return groupID(r) + "/" + strings.ToLower(r.PathValue("namespace"))
}

func (s *System) shown(n Namespace) map[string]any {
	state := "Succeeded"
	if s.now().Before(n.ReadyAt) {
		state = "Creating"
	}
	return map[string]any{
		"name": n.Name, "type": "Microsoft.EventHub/Namespaces", "location": n.Location, "tags": n.Tags,
		"properties": map[string]any{
			"provisioningState": state, "kafkaEnabled": true, "serviceBusEndpoint": "https://" + n.host() + ":443/",
		},
	}
}

func (n Namespace) host() string { return n.Name + ".servicebus.example.com" }

func (s *System) namespace(r *http.Request) (Namespace, error) {
	var n Namespace
	var ok bool
	s.View(func() { n, ok = s.namespaces.Get(namespaceID(r)) })
	if !ok {
		return n, notFound("Resource", r.PathValue("namespace"))
	}
	return n, nil
}

func (s *System) getNamespace(w http.ResponseWriter, r *http.Request) {
	n, err := s.namespace(r)
	if err != nil {
		fail(w, err)
		return
	}
	contract.JSON(w, http.StatusOK, s.shown(n))
}

var namespaceNames = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{4,48}[A-Za-z0-9]$`)

func (s *System) putNamespace(w http.ResponseWriter, r *http.Request) {
	var n Namespace
	if err := read(r, &n); err != nil {
		fail(w, err)
		return
	}
	n.Name, n.Group = r.PathValue("namespace"), groupID(r)
	if !namespaceNames.MatchString(n.Name) {
		fail(w, broken(r, "the name must have 6 to 50 letters, digits and -, and begin with a letter"))
		return
	}
	status := http.StatusCreated
	err := s.Update(func(tx *journal.Tx) error {
		g, ok := s.groups.Get(groupID(r))
		if !ok {
			return notFound("ResourceGroup", r.PathValue("group"))
		}
		if g.GoneAt != nil {
			return &problem{http.StatusConflict, "ResourceGroupBeingDeleted", "the resource group is being deleted"}
		}
		n.ReadyAt, n.Key = s.now().Add(s.cfg.CreateTime), rand.Text()
		if old, ok := s.namespaces.Get(namespaceID(r)); ok {
			status, n.ReadyAt, n.Key = http.StatusOK, old.ReadyAt, old.Key
		}
		return s.namespaces.Put(tx, namespaceID(r), n)
	})
	if err != nil {
		fail(w, err)
		return
	}
	contract.JSON(w, status, s.shown(n))
}

func (s *System) keys(w http.ResponseWriter, r *http.Request) {
	n, err := s.namespace(r)
	rule := r.PathValue("rule")
	switch {
	case err != nil:
		fail(w, err)
	case rule != "RootManageSharedAccessKey":
		contract.Violation(r, "path: the authorization rule must be RootManageSharedAccessKey")
		fail(w, notFound("Resource", rule))
	case s.now().Before(n.ReadyAt):
		fail(w, &problem{http.StatusConflict, "NamespaceNotReady", "the namespace is being created"})
	default:
		contract.JSON(w, http.StatusOK, map[string]string{
			"keyName": rule, "primaryKey": n.Key,
			"primaryConnectionString": "Endpoint=sb://" + n.host() + "/;SharedAccessKeyName=" + rule + ";SharedAccessKey=" + n.Key,
		})
	}
}
