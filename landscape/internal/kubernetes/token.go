package kubernetes

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/landscape/internal/contract"
)

// account is a ServiceAccount that authenticates with a token.
type account struct {
	Cluster   string    `json:"cluster"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       string    `json:"uid"`
	Until     time.Time `json:"until"`
}

// The limits of the real API server for the lifetime of a token, and its default, in seconds.
const (
	minExpiration     = 600
	maxExpiration     = 1 << 32
	defaultExpiration = 3600
)

const accountResource = "/v1/serviceaccounts"

// createToken answers a TokenRequest. A token is signed and not stored. It is invalid after its lifetime, or when its ServiceAccount is
// deleted.
func (s *System) createToken(w http.ResponseWriter, r *http.Request, t target) {
	var request struct {
		Kind string `json:"kind"`
		Spec struct {
			ExpirationSeconds *int64 `json:"expirationSeconds"`
		} `json:"spec"`
	}
	if err := contract.Decode(r, contract.MaxBody, &request); err != nil {
		writeError(w, r, badRequest("%v", err))
		return
	}
	if request.Kind != "" && request.Kind != "TokenRequest" {
		writeError(w, r, badRequest("kind is %s, but this path takes a TokenRequest", request.Kind))
		return
	}
	seconds := int64(defaultExpiration)
	if request.Spec.ExpirationSeconds != nil {
		seconds = *request.Spec.ExpirationSeconds
	}
	if seconds < minExpiration || seconds > maxExpiration {
		writeError(w, r, failure(http.StatusUnprocessableEntity, "Invalid",
			"spec.expirationSeconds: may not specify a duration less than 10 minutes or larger than 2^32 seconds"))
		return
	}
	uid, ok := s.accountUID(t.cluster, t.namespace, t.name)
	if !ok {
		writeError(w, r, t.collection.notFound(t.name))
		return
	}
	who := account{
		Cluster: t.cluster, Namespace: t.namespace, Name: t.name, UID: uid,
		Until: s.now().UTC().Truncate(time.Second).Add(time.Duration(seconds) * time.Second),
	}
	signed, err := s.sign(who)
	if err != nil {
		writeError(w, r, err)
		return
	}
	contract.JSON(w, http.StatusCreated, map[string]any{
		"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
		"metadata": map[string]any{"name": t.name, "namespace": t.namespace},
		"spec":     map[string]any{"expirationSeconds": seconds},
		"status":   map[string]any{"token": signed, "expirationTimestamp": who.Until.Format(time.RFC3339)},
	})
}

// accountUID returns the UID of the current ServiceAccount with that name.
func (s *System) accountUID(cluster, namespace, name string) (string, bool) {
	c, ok := s.collections[accountResource]
	if !ok {
		return "", false
	}
	var o object
	s.View(func() { o, ok = c.table.Get(object{Cluster: cluster, Namespace: namespace, Name: name}.id()) })
	if !ok {
		return "", false
	}
	var body struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	return body.Metadata.UID, json.Unmarshal(o.Body, &body) == nil
}

func (s *System) sign(who account) (string, error) {
	raw, err := json.Marshal(who)
	if err != nil {
		return "", err
	}
	body := base64.RawURLEncoding.EncodeToString(raw)
	return body + "." + signature(s.adminToken(who.Cluster), body), nil
}

func (s *System) adminToken(clusterID string) string {
	if !s.cfg.PerRuntime {
		return s.cfg.Token
	}
	var c cluster
	s.View(func() { c, _ = s.clusters.Get(clusterID) })
	return c.Token
}

func signature(adminToken, body string) string {
	mac := hmac.New(sha256.New, []byte("landscape service account\x00"+adminToken))
	mac.Write([]byte(body))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// tokenOwner returns the ServiceAccount of a token, or nil if the token is foreign, changed or expired, or the ServiceAccount is
// deleted.
func (s *System) tokenOwner(clusterID, adminToken, bearer string) *account {
	body, mark, ok := strings.Cut(bearer, ".")
	if !ok || !hmac.Equal([]byte(signature(adminToken, body)), []byte(mark)) {
		return nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(body)
	var who account
	if err != nil || json.Unmarshal(raw, &who) != nil || who.Cluster != clusterID || !s.now().Before(who.Until) {
		return nil
	}
	if uid, ok := s.accountUID(who.Cluster, who.Namespace, who.Name); !ok || uid != who.UID {
		return nil
	}
	return &who
}

// rule is a rule of a ClusterRole with the relevant members.
type rule struct {
	APIGroups []string `json:"apiGroups"`
	Resources []string `json:"resources"`
	Verbs     []string `json:"verbs"`
}

// authorize checks the rights of a ServiceAccount, which come from ClusterRoles and ClusterRoleBindings. The administrator may do
// everything.
func (s *System) authorize(who *account, r *http.Request, t target) error {
	if who == nil {
		return nil
	}
	resource := t.collection.Plural
	if t.subresource != "" {
		resource += "/" + t.subresource
	}
	verb := verbOf(r.Method, t.name != "")
	allowed := false
	s.View(func() {
		for _, role := range s.rolesOf(*who) {
			for _, one := range s.rulesOf(who.Cluster, role) {
				allowed = allowed || permits(one.APIGroups, t.collection.Group) && permits(one.Resources, resource) && permits(one.Verbs, verb)
			}
		}
	})
	if !allowed {
		return t.collection.about(http.StatusForbidden, "Forbidden", t.name,
			"is forbidden: the ServiceAccount "+who.Namespace+"/"+who.Name+" cannot "+verb+" it")
	}
	return nil
}

func permits(allowed []string, wanted string) bool {
	return slices.Contains(allowed, "*") || slices.Contains(allowed, wanted)
}

func verbOf(method string, named bool) string {
	switch {
	case method == http.MethodGet && !named:
		return "list"
	case method == http.MethodPost:
		return "create"
	case method == http.MethodPut:
		return "update"
	case method == http.MethodPatch:
		return "patch"
	case method == http.MethodDelete && !named:
		return "deletecollection"
	case method == http.MethodDelete:
		return "delete"
	}
	return "get"
}

// rolesOf returns the names of a ServiceAccount's ClusterRoles. Call it in View.
func (s *System) rolesOf(who account) []string {
	c, ok := s.collections["rbac.authorization.k8s.io/v1/clusterrolebindings"]
	if !ok {
		return nil
	}
	var roles []string
	for _, o := range c.byCluster[who.Cluster] {
		var body struct {
			RoleRef struct {
				Kind string `json:"kind"`
				Name string `json:"name"`
			} `json:"roleRef"`
			Subjects []struct {
				Kind      string `json:"kind"`
				Name      string `json:"name"`
				Namespace string `json:"namespace"`
			} `json:"subjects"`
		}
		if json.Unmarshal(o.Body, &body) != nil || body.RoleRef.Kind != "ClusterRole" {
			continue
		}
		for _, subject := range body.Subjects {
			if subject.Kind == "ServiceAccount" && subject.Name == who.Name && subject.Namespace == who.Namespace {
				roles = append(roles, body.RoleRef.Name)
			}
		}
	}
	return roles
}

// rulesOf returns the rules of a ClusterRole. Call it in View.
func (s *System) rulesOf(clusterID, role string) []rule {
	c, ok := s.collections["rbac.authorization.k8s.io/v1/clusterroles"]
	if !ok {
		return nil
	}
	o, ok := c.table.Get(object{Cluster: clusterID, Name: role}.id())
	if !ok {
		return nil
	}
	var body struct {
		Rules []rule `json:"rules"`
	}
	if json.Unmarshal(o.Body, &body) != nil {
		return nil
	}
	return body.Rules
}
