package kubernetes

import (
	"net/http"
	"strings"

	"github.com/kyma-project/keb/landscape/internal/answer"
	"github.com/kyma-project/keb/landscape/internal/token"
)

// target is what a request path points at.
type target struct {
	cluster     string
	collection  *collection
	namespace   string
	name        string
	subresource string
}

// ServeHTTP serves everything below the prefix.
func (s *System) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rest, ok := strings.CutPrefix(r.URL.Path, s.cfg.Prefix+"/")
	if !ok {
		writeError(w, failure(http.StatusNotFound, "NotFound", "the path is not served"))
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
		writeError(w, err)
		return
	}
	parts := strings.Split(strings.Trim(rest, "/"), "/")
	if s.discover(w, r, parts) {
		return
	}
	t, pattern, err := s.resolve(clusterID, parts)
	r.Pattern = route + pattern
	if err != nil {
		writeError(w, err)
		return
	}
	if err := s.settle(); err != nil {
		writeError(w, err)
		return
	}
	if err := s.authorize(who, r, t); err != nil {
		writeError(w, err)
		return
	}
	s.dispatch(w, r, t)
}

// admit checks the bearer token and says whose it is: nil for the administrator. A runtime that is gone answers 503: its
// API server is not there any more, which must not look like an object that is not found.
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
	if token.Equal(answer.Bearer(r), want) {
		return nil, nil
	}
	who := s.tokenOwner(clusterID, want, answer.Bearer(r))
	if who == nil {
		return nil, failure(http.StatusUnauthorized, "Unauthorized", "Unauthorized")
	}
	return who, nil
}

// resolve understands /api/v1/... and /apis/{group}/{version}/..., with or without namespaces/{namespace}.
func (s *System) resolve(clusterID string, parts []string) (target, string, error) {
	missing := failure(http.StatusNotFound, "NotFound", "the server could not find the requested resource")
	var group, version, pattern string
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		version, pattern, parts = parts[1], "/api/"+parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		group, version, pattern, parts = parts[1], parts[2], "/apis/"+parts[1]+"/"+parts[2], parts[3:]
	default:
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
		writeError(w, failure(http.StatusMethodNotAllowed, "MethodNotAllowed", "the server does not allow this method on the requested resource"))
	case r.Method == http.MethodGet && named:
		s.get(w, t)
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
		writeError(w, failure(http.StatusMethodNotAllowed, "MethodNotAllowed", "the server does not allow this method on the requested resource"))
	}
}

// discover answers the discovery paths, so that kubectl and REST mappers work.
func (s *System) discover(w http.ResponseWriter, r *http.Request, parts []string) bool {
	if r.Method != http.MethodGet {
		return false
	}
	switch {
	case len(parts) == 1 && parts[0] == "version":
		answer.JSON(w, http.StatusOK, map[string]string{"major": "1", "minor": "26", "gitVersion": "v1.26.5"})
	case len(parts) == 1 && parts[0] == "api":
		answer.JSON(w, http.StatusOK, map[string]any{"kind": "APIVersions", "versions": []string{"v1"}})
	case len(parts) == 1 && parts[0] == "apis":
		answer.JSON(w, http.StatusOK, map[string]any{"kind": "APIGroupList", "apiVersion": "v1", "groups": s.groups()})
	case len(parts) == 2 && parts[0] == "api":
		return s.resources(w, "", parts[1])
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
	answer.JSON(w, http.StatusOK, map[string]any{
		"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": strings.TrimPrefix(group+"/"+version, "/"), "resources": list,
	})
	return true
}
