package kubernetes

import (
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/kyma-project/keb/landscape/internal/contract"
)

// target is the resource of a request path.
type target struct {
	cluster     string
	collection  *collection
	namespace   string
	name        string
	subresource string
}

// ServeHTTP serves all paths below the prefix.
func (s *System) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.Path, s.cfg.Prefix+"/")
	if !ok {
		writeError(w, r, failure(http.StatusNotFound, "NotFound", "the path is not served"))
		return
	}
	route := s.cfg.Prefix
	var clusterID string
	if s.cfg.PerRuntime {
		clusterID, rest, _ = strings.Cut(rest, "/")
		route += "/{id}"
	}
	r.Pattern = route + "/" + rest
	who, err := s.admit(r, clusterID)
	if err != nil {
		r.Pattern = route
		writeError(w, r, err)
		return
	}
	parts := strings.Split(strings.Trim(rest, "/"), "/")
	if s.discover(w, r, parts) {
		return
	}
	if err := mediaType(r); err != nil {
		writeError(w, r, err)
		return
	}
	t, pattern, err := s.resolve(clusterID, parts)
	r.Pattern = route + pattern
	if err != nil {
		writeError(w, r, err)
		return
	}
	if err := s.settle(); err != nil {
		writeError(w, r, err)
		return
	}
	checkQuery(r, t)
	if err := s.authorize(who, r, t); err != nil {
		writeError(w, r, err)
		return
	}
	s.dispatch(w, r, t)
}

// admit checks the bearer token and returns its account, or nil for the administrator. For a removed runtime it answers 503: its API server
// does not exist any more, which must not be mistaken for a missing object.
func (s *System) admit(r *http.Request, clusterID string) (*account, error) {
	want := s.cfg.Token
	if s.cfg.PerRuntime {
		var c cluster
		var ok bool
		s.View(func() { c, ok = s.clusters.Get(clusterID) })
		if !ok {
			return nil, failure(http.StatusServiceUnavailable, "ServiceUnavailable", "no cluster answers here")
		}
		want = c.Token
	}
	if contract.SameSecret(contract.Bearer(r), want) {
		return nil, nil
	}
	if r.Header.Get("Authorization") == "" {
		return nil, breaks(http.StatusUnauthorized, "Unauthorized", "header Authorization: required")
	}
	who := s.tokenOwner(clusterID, want, contract.Bearer(r))
	if who == nil {
		return nil, failure(http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	}
	return who, nil
}

// resolve parses /api/v1/... and /apis/{group}/{version}/..., with or without namespaces/{namespace}.
func (s *System) resolve(clusterID string, parts []string) (target, string, error) {
	missing := breaks(http.StatusNotFound, "NotFound", "the server could not find the requested resource")
	var group, version, pattern string
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		version, pattern, parts = parts[1], "/api/"+parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		group, version, pattern, parts = parts[1], parts[2], "/apis/"+parts[1]+"/"+parts[2], parts[3:]
	default:
		return target{}, "/(other)", missing
	}
	if !slices.ContainsFunc(s.cfg.Resources, func(res Resource) bool { return res.Group == group && res.Version == version }) {
		missing.reason = "" // the real server does not have the path
		if group != "" {
			missing.breach = "" // a correct client can access clusters without a definition
		}
		return target{}, "/(other)", missing
	}
	t := target{cluster: clusterID}
	if parts[0] == "namespaces" && len(parts) >= 3 && (group != "" || (parts[2] != "status" && parts[2] != "finalize")) {
		t.namespace, parts = parts[1], parts[2:]
		pattern += "/namespaces/{namespace}"
	}
	c, ok := s.collections[group+"/"+version+"/"+parts[0]]
	if !ok || len(parts) > 3 || (t.namespace != "" && !c.Namespaced) {
		return target{}, "/(other)", missing
	}
	t.collection = c
	pattern += "/" + c.Plural
	if len(parts) > 1 {
		t.name = parts[1]
		pattern += "/{name}"
	}
	if len(parts) > 2 {
		t.subresource = parts[2]
		if t.subresource != "status" && (t.subresource != "token" || !c.Tokens) {
			return target{}, "/(other)", missing
		}
		pattern += "/" + t.subresource
	}
	if t.name != "" && c.Namespaced && t.namespace == "" {
		return target{}, pattern, missing
	}
	return t, pattern, nil
}

func (s *System) dispatch(w http.ResponseWriter, r *http.Request, t target) {
	named := t.name != ""
	switch {
	case t.subresource == "token" && r.Method == http.MethodPost:
		s.createToken(w, r, t)
	case t.subresource == "token":
		writeError(w, r, breaks(http.StatusMethodNotAllowed, "MethodNotAllowed", "the server does not allow this method on the requested resource"))
	case r.Method == http.MethodGet && named:
		s.get(w, r, t)
	case r.Method == http.MethodGet:
		s.list(w, r, t)
	case r.Method == http.MethodPost && !named:
		s.create(w, r, t)
	case r.Method == http.MethodPut && named:
		s.update(w, r, t)
	case r.Method == http.MethodPatch && named:
		s.patch(w, r, t)
	case r.Method == http.MethodDelete && named:
		s.delete(w, r, t)
	case r.Method == http.MethodDelete:
		s.deleteAll(w, r, t)
	default:
		writeError(w, r, breaks(http.StatusMethodNotAllowed, "MethodNotAllowed", "the server does not allow this method on the requested resource"))
	}
}

// The query parameters of the API server, by request. The server ignores any other, but a correct client sends none.
var (
	anyParameters  = []string{"pretty", "timeout"}
	listParameters = []string{
		"labelSelector", "fieldSelector", "limit", "continue", "resourceVersion", "resourceVersionMatch", "timeoutSeconds", "watch",
		"allowWatchBookmarks", "sendInitialEvents",
	}
	writeParameters  = []string{"fieldManager", "fieldValidation"}
	deleteParameters = []string{"gracePeriodSeconds", "propagationPolicy", "orphanDependents", "ignoreStoreReadErrorWithClusterBreakingPotential"}
)

// checkQuery records unknown query parameters.
func checkQuery(r *http.Request, t target) {
	allowed := anyParameters
	switch {
	case r.Method == http.MethodGet && t.name == "":
		allowed = slices.Concat(allowed, listParameters)
	case r.Method == http.MethodGet:
		allowed = append(slices.Clone(allowed), "resourceVersion")
	case r.Method == http.MethodDelete && t.name == "":
		allowed = slices.Concat(allowed, deleteParameters, listParameters)
	case r.Method == http.MethodDelete:
		allowed = slices.Concat(allowed, deleteParameters)
	case r.Method == http.MethodPatch:
		allowed = append(slices.Concat(allowed, writeParameters), "force")
	default:
		allowed = slices.Concat(allowed, writeParameters)
	}
	_ = contract.Query(r, allowed...)
}

// mediaType rejects bodies that are not JSON. Patches have their own types, see readPatch.
func mediaType(r *http.Request) error {
	sent := r.Header.Get("Content-Type")
	if r.Method == http.MethodGet || r.Method == http.MethodPatch || sent == "" {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(sent); err == nil && kind == "application/json" {
		return nil
	}
	return breaks(http.StatusUnsupportedMediaType, "UnsupportedMediaType", "header Content-Type: must be application/json")
}

// discover answers the discovery paths, which kubectl and REST mappers need.
func (s *System) discover(w http.ResponseWriter, r *http.Request, parts []string) bool {
	if r.Method != http.MethodGet {
		return false
	}
	switch {
	case len(parts) == 1 && parts[0] == "version":
		contract.JSON(w, http.StatusOK, map[string]string{"major": "1", "minor": "26", "gitVersion": "v1.26.5"})
	case len(parts) == 1 && parts[0] == "api":
		contract.JSON(w, http.StatusOK, map[string]any{"kind": "APIVersions", "versions": []string{"v1"}})
	case len(parts) == 1 && parts[0] == "apis":
		contract.JSON(w, http.StatusOK, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": s.groups()})
	case len(parts) == 2 && parts[0] == "api":
		return s.resources(w, "", parts[1])
	case parts[0] == "openapi":
		// Clients request it, but work without it.
		contract.JSON(w, http.StatusNotFound, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": http.StatusNotFound})
	case len(parts) == 3 && parts[0] == "apis":
		return s.resources(w, parts[1], parts[2])
	default:
		return false
	}
	return true
}

func (s *System) groups() []map[string]any {
	groups := []map[string]any{}
	seen := map[string]bool{}
	for _, res := range s.cfg.Resources {
		if res.Group == "" || seen[res.Group] {
			continue
		}
		seen[res.Group] = true
		version := map[string]string{"groupVersion": res.Group + "/" + res.Version, "version": res.Version}
		groups = append(groups, map[string]any{"name": res.Group, "versions": []any{version}, "preferredVersion": version})
	}
	return groups
}

func (s *System) resources(w http.ResponseWriter, group, version string) bool {
	list := []map[string]any{}
	for _, res := range s.cfg.Resources {
		if res.Group == group && res.Version == version {
			list = append(list, map[string]any{
				"name": res.Plural, "singularName": "", "kind": res.Kind, "namespaced": res.Namespaced,
				"verbs": []string{"create", "delete", "deletecollection", "get", "list", "patch", "update"},
			})
		}
	}
	if len(list) == 0 {
		return false
	}
	contract.JSON(w, http.StatusOK, map[string]any{
		"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": strings.TrimPrefix(group+"/"+version, "/"), "resources": list,
	})
	return true
}
