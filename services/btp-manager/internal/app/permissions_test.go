package app_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// need is a required right. Without a namespace it applies to all of them, or the resource is cluster-scoped; without a name it applies to
// all names.
type need struct{ verb, group, resource, namespace, name string }

func (n need) String() string {
	return strings.TrimSpace(n.verb + " " + resourceIn(n.resource, n.group) + " " + strings.Trim(n.namespace+"/"+n.name, "/"))
}

// right is the smallest removable part of a role: one verb for one resource, and for one name if the rule has names.
type right struct {
	verb, group, resource, namespace, name string
}

func (r right) String() string {
	where := "everywhere"
	if r.namespace != "" {
		where = "in " + r.namespace
	}
	return strings.TrimSpace(r.verb+" "+resourceIn(r.resource, r.group)+" "+r.name) + " " + where
}

func resourceIn(resource, group string) string { return strings.TrimSuffix(resource+"."+group, ".") }

// covers reports whether the right alone is sufficient for a need.
func (r right) covers(n need) bool {
	return r.verb == n.verb && r.group == n.group && r.resource == n.resource &&
		(r.namespace == "" || r.namespace == n.namespace) && (r.name == "" || r.name == n.name)
}

// rightsOf splits rules that are bound in a namespace, or in the whole cluster.
func rightsOf(rules []rbacv1.PolicyRule, namespace string) []right {
	var out []right
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						out = append(out, right{verb, group, resource, namespace, name})
					}
				}
			}
		}
	}
	return out
}

// granted returns the rights that the creator of a role needs: Kubernetes does not allow users to grant rights that they do not have.
func granted(rights []right) []need {
	out := make([]need, 0, len(rights))
	for _, r := range rights {
		out = append(out, need(r))
	}
	return out
}

// done returns a user's successful and forbidden calls from an audit log.
func done(events []auditv1.Event) (needs []need, forbidden []string) {
	all := map[need]bool{}
	for _, e := range events {
		if e.ObjectRef == nil || e.ResponseStatus == nil {
			continue // discovery, which every account may use
		}
		ref := e.ObjectRef
		n := need{e.Verb, ref.APIGroup, ref.Resource, ref.Namespace, ref.Name}
		if ref.Subresource != "" {
			n.resource += "/" + ref.Subresource
		}
		if n.verb == "create" {
			n.name = "" // it is not in the request's path, so that a rule for a name does not allow it
		}
		if e.ResponseStatus.Code == 403 {
			forbidden = append(forbidden, n.String()+": "+e.ResponseStatus.Message)
			continue
		}
		all[n] = true
		if n.verb == "patch" && e.ResponseStatus.Code == 201 {
			n.verb = "create" // server-side apply of an object that was not there needs both
			all[n] = true
		}
	}
	return slices.Collect(maps.Keys(all)), forbidden
}

// judge returns the differences between rights and needs: missing rights, unneeded rights, and rights with a wider scope than
// needed.
func judge(rights []right, needs []need) []string {
	alone := make([][]need, len(rights)) // the needs that only this right covers
	var found []string
	for _, n := range needs {
		by := -1
		for i, r := range rights {
			switch {
			case !r.covers(n):
			case by >= 0:
				by = len(rights) // more than one
			default:
				by = i
			}
		}
		switch {
		case by < 0:
			found = append(found, "not allowed: "+n.String())
		case by < len(rights):
			alone[by] = append(alone[by], n)
		}
	}
	for i, r := range rights {
		if len(alone[i]) == 0 {
			found = append(found, "not needed: "+r.String())
			continue
		}
		first := alone[i][0]
		every := func(same func(need) bool) bool {
			return !slices.ContainsFunc(alone[i], func(n need) bool { return !same(n) })
		}
		if r.namespace == "" && first.namespace != "" && every(func(n need) bool { return n.namespace == first.namespace }) {
			found = append(found, "needed in "+first.namespace+" only: "+r.String())
		}
		if r.name == "" && first.name != "" && every(func(n need) bool { return n.name == first.name }) {
			found = append(found, "needed for "+first.name+" only: "+r.String())
		}
	}
	slices.Sort(found)
	return found
}

func TestPermissions_ChartRoles_MatchNeeds(t *testing.T) {
	t.Parallel()
	rules := func(name string, verbs ...string) []rbacv1.PolicyRule {
		r := rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: verbs}
		if name != "" {
			r.ResourceNames = []string{name}
		}
		return []rbacv1.PolicyRule{r}
	}
	get := func(namespace, name string) need { return need{"get", "apps", "deployments", namespace, name} }
	for _, tt := range []struct {
		name   string
		rights []right
		needs  []need
		want   []string
	}{
		{"as much as is needed", rightsOf(rules("", "get"), "a"), []need{get("a", "x"), get("a", "y")}, nil},
		{"a verb more", rightsOf(rules("", "get", "patch"), "a"), []need{get("a", "x"), get("a", "y")}, []string{"not needed: patch deployments.apps in a"}},
		{"a verb less", nil, []need{get("a", "x")}, []string{"not allowed: get deployments.apps a/x"}},
		{"another namespace", rightsOf(rules("", "get"), "a"), []need{get("a", "x"), get("a", "y"), get("b", "x")}, []string{"not allowed: get deployments.apps b/x"}},
		{"another name", rightsOf(rules("x", "get"), "a"), []need{get("a", "x"), get("a", "y")}, []string{"not allowed: get deployments.apps a/y"}},
		{"all of them, by a name", rightsOf(rules("x", "get"), "a"), []need{get("a", "x"), get("a", "")}, []string{"not allowed: get deployments.apps a"}},
		{"a whole cluster for a namespace", rightsOf(rules("", "get"), ""), []need{get("a", "x"), get("a", "y")}, []string{"needed in a only: get deployments.apps everywhere"}},
		{"a whole cluster for two", rightsOf(rules("", "get"), ""), []need{get("a", "x"), get("b", "y")}, nil},
		{"all names for one", rightsOf(rules("", "get"), "a"), []need{get("a", "x")}, []string{"needed for x only: get deployments.apps in a"}},
		{
			"the same twice", slices.Concat(rightsOf(rules("", "get"), ""), rightsOf(rules("", "get"), "a")),
			[]need{get("a", "x"), get("a", "y"), get("b", "x")},
			[]string{"needed in b only: get deployments.apps everywhere", "needed for x only: get deployments.apps everywhere", "not needed: get deployments.apps in a"},
		},
		{"what is granted onward", rightsOf(rules("", "get"), "a"), granted(rightsOf(rules("", "get"), "a")), nil},
		{"what is granted onward everywhere", rightsOf(rules("", "get"), "a"), granted(rightsOf(rules("", "get"), "")), []string{
			"not needed: get deployments.apps in a", "not allowed: get deployments.apps",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			slices.Sort(tt.want)
			if diff := cmp.Diff(tt.want, judge(tt.rights, tt.needs)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestPermissions_AuditLog_ListsNeededRights(t *testing.T) {
	t.Parallel()
	event := func(code int32, verb, resource, subresource, name string) auditv1.Event {
		e := auditv1.Event{Verb: verb, ObjectRef: &auditv1.ObjectReference{Resource: resource, Subresource: subresource, Namespace: "a", Name: name}}
		e.ResponseStatus = &metav1.Status{Code: code, Message: fmt.Sprintf("code %d", code)}
		return e
	}
	needs, forbidden := done([]auditv1.Event{
		{Verb: "get", RequestURI: "/api"},
		event(200, "get", "secrets", "", "x"),
		event(200, "get", "secrets", "", "x"),
		event(404, "get", "secrets", "", "y"),
		event(201, "create", "secrets", "", "y"),
		event(200, "patch", "pods", "status", "p"),
		event(201, "patch", "pods", "", "p"),
		event(403, "delete", "pods", "", "p"),
	})
	var got []string
	for _, n := range needs {
		got = append(got, n.String())
	}
	slices.Sort(got)
	want := []string{
		"create pods a/p", "create secrets a", "get secrets a/x", "get secrets a/y", "patch pods a/p", "patch pods/status a/p",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("needs (-want +got):\n%s", diff)
	}
	if want := []string{"delete pods a/p: code 403"}; !slices.Equal(want, forbidden) {
		t.Errorf("forbidden %v, want %v", forbidden, want)
	}
}
