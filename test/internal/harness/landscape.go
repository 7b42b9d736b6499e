package harness

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/stretchr/testify/require"
)

// Object is an object of an external system, as the landscape's admin API shows it: secret values are masked.
type Object struct {
	System, Kind, ID string
	Raw              string // JSON
}

// Has reports whether a text occurs in the object.
func (o Object) Has(text string) bool { return strings.Contains(o.Raw, text) }

// Into decodes the object.
func (o Object) Into(s *System, into any) {
	s.t.Helper()
	require.NoErrorf(s.t, json.Unmarshal([]byte(o.Raw), into), "%s %s %s", o.System, o.Kind, o.ID)
}

// Objects are those of a system, of a kind, that contain a text.
func (s *System) Objects(system, kind, contains string) []Object {
	s.t.Helper()
	query := url.Values{"kind": {kind}, "contains": {contains}}
	answer := Get[struct{ Data []json.RawMessage }](s, s.admin(system)+"/objects?"+query.Encode())
	objects := make([]Object, 0, len(answer.Data))
	for _, raw := range answer.Data {
		o := Object{System: system, Raw: string(raw)}
		o.Into(s, &o)
		o.Raw = string(raw)
		objects = append(objects, o)
	}
	return objects
}

// Created is how many objects the landscape has ever made, by "system/kind".
func (s *System) Created() map[string]int {
	s.t.Helper()
	return s.count(func(v systemView) map[string]int { return v.Created })
}

// Holds is how many objects the landscape holds, by "system/kind".
func (s *System) Holds() map[string]int {
	s.t.Helper()
	return s.count(func(v systemView) map[string]int { return v.Objects })
}

// Calls is how many requests each system has been asked since the last start.
func (s *System) Calls() map[string]int {
	s.t.Helper()
	return s.count(func(v systemView) map[string]int {
		n := 0
		for _, call := range v.Calls {
			n += call.Count
		}
		return map[string]int{"calls": n}
	})
}

type systemView struct {
	Name             string
	Objects, Created map[string]int
	Calls            []struct{ Count int }
}

func (s *System) count(of func(systemView) map[string]int) map[string]int {
	s.t.Helper()
	counts := map[string]int{}
	for _, v := range Get[struct{ Data []systemView }](s, s.admin("")).Data {
		for kind, n := range of(v) {
			counts[v.Name+"/"+kind] = n
		}
	}
	return counts
}

// Fault makes a system misbehave as the admin API describes it, for example {"outage": true}; {} makes it well again.
func (s *System) Fault(system, settings string) {
	s.t.Helper()
	body, status, err := s.call(http.MethodPut, s.admin(system), settings)
	if err != nil || status != http.StatusOK {
		s.t.Fatalf("set %s to %s: status %d, %v: %s", system, settings, status, err, body)
	}
}

// Fail makes the work that a system does for an instance from now on fail, or for all with "*". Empty makes it succeed again.
func (s *System) Fail(system, instanceID string) {
	s.t.Helper()
	method, content, want := http.MethodDelete, "", http.StatusNoContent
	if instanceID != "" {
		method, content, want = http.MethodPut, fmt.Sprintf(`{"instanceId": %q}`, instanceID), http.StatusOK
	}
	body, status, err := s.call(method, s.admin(system)+"/failures", content)
	if err != nil || status != want {
		s.t.Fatalf("let %s fail for %q: status %d, %v: %s", system, instanceID, status, err, body)
	}
}

// RealCluster lets the runtime of an order be a real cluster: the Provisioner hands out its kubeconfig. Call it before the
// order is placed.
func (s *System) RealCluster(o *Order, kubeconfig []byte) {
	s.t.Helper()
	content, err := json.Marshal(map[string]string{"instanceId": o.InstanceID, "kubeconfig": string(kubeconfig)})
	require.NoError(s.t, err)
	body, status, err := s.call(http.MethodPut, s.admin("provisioner")+"/kubeconfigs", string(content))
	if err != nil || status != http.StatusOK {
		s.t.Fatalf("set the kubeconfig of %s: status %d, %v: %s", o.InstanceID, status, err, body)
	}
}

// DeleteSubaccount lets the cloud inventory tell that a sub-account was deleted.
func (s *System) DeleteSubaccount(id string) {
	s.t.Helper()
	event, err := json.Marshal(map[string]string{"subaccountId": id})
	require.NoError(s.t, err)
	body, status, err := s.call(http.MethodPost, s.admin("cis")+"/events", string(event))
	if err != nil || status != http.StatusCreated {
		s.t.Fatalf("delete sub-account %s: status %d, %v: %s", id, status, err, body)
	}
}

// checkContracts fails the test if a worker sent a request that breaks the contract of its system. It does nothing while the
// landscape is down: violations survive a restart.
func (s *System) checkContracts() {
	s.t.Helper()
	body, status, err := s.get(s.admin(""))
	if err != nil || status != http.StatusOK {
		return
	}
	var systems struct {
		Data []struct {
			Name       string
			Violations struct {
				Count int
				Last  []struct{ Request, Problem string }
			}
		}
	}
	if err := json.Unmarshal(body, &systems); err != nil {
		s.t.Errorf("read the systems of the landscape: %v", err)
		return
	}
	for _, system := range systems.Data {
		for _, v := range system.Violations.Last {
			s.t.Errorf("one of %d requests that break the contract of %s: %s: %s", system.Violations.Count, system.Name, v.Request, v.Problem)
		}
	}
}

func (s *System) admin(system string) string {
	return strings.TrimSuffix("http://"+s.LandscapeAddr+"/admin/systems/"+system, "/")
}
