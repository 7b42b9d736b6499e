package harness

import (
	"encoding/json"
	"net/http"
	"net/url"
)

// Runtime is what the tests read of a runtime in the list of the broker.
type Runtime struct {
	InstanceID string `json:"instanceID"`
	RuntimeID  string `json:"runtimeID"`
	ShootName  string `json:"shootName"`
	Status     struct {
		State string `json:"state"`
	} `json:"status"`
	KymaVersion string `json:"kymaVersion"`
}

// Runtimes are those of an instance in GET /runtimes: one, or none when it is hidden in that state ("" hides what is suspended or gone).
func (s *System) Runtimes(o *Order, state string) []Runtime {
	s.t.Helper()
	query := url.Values{"instance_id": {o.InstanceID}}
	if state != "" {
		query.Set("state", state)
	}
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.OSBAddr+"/runtimes?"+query.Encode(), http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	request.SetBasicAuth("keb", "keb")
	response, err := s.HTTP.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var list struct{ Data []Runtime }
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("list runtimes: status %d, %v", response.StatusCode, err)
	}
	return list.Data
}
