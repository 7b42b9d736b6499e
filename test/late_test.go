package test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/postgres/pgtest"
	"github.com/kyma-project/keb/test/internal/harness"
)

// EDP does not answer a request, which takes effect after the instance was deprovisioned.
func TestRetrigger_LateEffect_IsRemoved(t *testing.T) {
	t.Parallel()
	database := pgtest.Database(t, nil)
	sys := harness.Start(t, harness.Options{Env: []string{"KEB_DATABASE_URL=" + database, "KEB_EDP_TIMEOUT=1s"}})
	o := harness.Azure()
	sys.Fault("edp", `{"timeout": true}`)
	provision := sys.Provision(o)
	sys.Await(provision, limit, "a call without an answer", func(op *harness.Operation) bool {
		return op.Error != nil && op.Error.Reason == "err_network_timeout"
	})
	sys.Fault("edp", healthy)
	sys.PollEnd(o, provision, osb.StateSucceeded, limit)
	var tenant struct{ Name, Environment string }
	sys.Objects("edp", "dataTenant", o.Subaccount)[0].Into(sys, &tenant)
	first := sys.Deprovision(o)
	sys.PollEnd(o, first, osb.StateSucceeded, limit)
	op := sys.AwaitEnd(first, "succeeded", limit)
	require.Equal(t, []string{"Remove_Instance"}, op.NotCompleted)
	require.Equal(t, "err_keb_unsettled", op.At(t, "Remove_Instance").Error.Reason)
	checkNothingLeft(t, sys, o)

	createTenant(t, sys, tenant.Name, tenant.Environment)
	db, err := postgres.Open(t.Context(), postgres.Config{URL: database, MaxOpen: 1, ApplicationName: "test"})
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), `UPDATE orchestrator.instances SET unanswered_at = unanswered_at - interval '2 minutes'`)
	require.NoError(t, err)
	if got := job(t, sys, "deprovision-retrigger", "--wait"); got.Found != 1 || got.Completed != 1 {
		t.Errorf("retrigger: %+v, want one completed", got)
	}
	checkNothingLeft(t, sys, o)
	require.Contains(t, scrape(t, sys), `keb_late_effects_total{step="EDP_Deregistration"} 1`+"\n")
	var message string
	require.NoError(t, db.GetContext(t.Context(), &message, `SELECT message FROM orchestrator.history WHERE message LIKE 'removed what%'`))
	require.Equal(t, "removed what an unanswered request had created: data tenant "+tenant.Name, message)
	if again := job(t, sys, "deprovision-retrigger"); again.Found != 0 {
		t.Errorf("once more: %+v, want nothing left", again)
	}
}

// createTenant creates a data tenant in EDP, as a late request does.
func createTenant(t *testing.T, sys *harness.System, name, environment string) {
	t.Helper()
	base := "http://" + sys.LandscapeAddr + "/edp"
	ask := func(r *http.Request) (answer struct {
		Token string `json:"access_token"`
	},
	) {
		response, err := sys.HTTP.Do(r)
		require.NoError(t, err)
		defer response.Body.Close()
		require.Less(t, response.StatusCode, 300)
		require.NoError(t, json.NewDecoder(response.Body).Decode(&answer))
		return answer
	}
	form := url.Values{"grant_type": {"client_credentials"}, "scope": {"edp-namespace.read edp-namespace.update"}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/oauth2/token", strings.NewReader(form.Encode()))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.SetBasicAuth(url.QueryEscape("edp-namespace;kyma-dev"), "keb")
	token := ask(r).Token
	body, err := json.Marshal(map[string]any{"name": name, "environment": environment, "secret": []byte(name + environment)})
	require.NoError(t, err)
	r, err = http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/namespaces/kyma-dev/dataTenants", strings.NewReader(string(body)))
	require.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	ask(r)
}
