package harness

import (
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/broker"
)

// Runtimes are those of an instance in GET /runtimes: one, or none when it is hidden in that state ("" hides what is suspended or gone).
func (s *System) Runtimes(o *Order, state string) []broker.Runtime {
	s.t.Helper()
	query := url.Values{"instance_id": {o.InstanceID}}
	if state != "" {
		query.Set("state", state)
	}
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.OSBAddr+"/runtimes?"+query.Encode(), http.NoBody)
	require.NoError(s.t, err)
	request.SetBasicAuth("keb", "keb")
	response, err := s.HTTP.Do(request)
	require.NoError(s.t, err)
	defer func() { _ = response.Body.Close() }()
	var list broker.RuntimeList
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("list runtimes: status %d, %v", response.StatusCode, err)
	}
	return list.Data
}
