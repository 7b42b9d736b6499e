package instance_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/services/broker/internal/instance"
)

func TestParseContextChange_Members_AreOptional(t *testing.T) {
	t.Parallel()
	yes := true
	for context, want := range map[string]instance.ContextChange{
		``:     {},
		`null`: {},
		`{"user_id":"someone else","subaccount_id":"s","platform":"p","tenant_id":1}`: {},
		`{"globalaccount_id":" g ","license_type":"TRIAL","active":true}`:             {GlobalAccountID: "g", LicenseType: "TRIAL", Active: &yes},
		`{"globalaccount_id":null,"active":null,"sm_operator_credentials":null}`:      {},
		`{"sm_operator_credentials":{"clientid":"a","clientsecret":"b","sm_url":"https://c","url":"https://d"}}`: {
			ServiceManager: json.RawMessage(`{"clientid":"a","clientsecret":"b","sm_url":"https://c","url":"https://d"}`),
		},
	} {
		got, err := instance.ParseContextChange(json.RawMessage(context))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", context, err, diff)
		}
	}
	for context, want := range map[string]string{
		`[]`:                                 "context must be a JSON object",
		`{"active":"true","license_type":1}`: "context/license_type must be a string; context/active must be true or false",
		`{"sm_operator_credentials":{"clientid":"a"}}`: "context/sm_operator_credentials: missing clientsecret, sm_url, url",
		`{"sm_operator_credentials":{"clientid":"a","clientsecret":"b","sm_url":"CANARY","url":"https://d"}}`: "context/sm_operator_credentials: " +
			"sm_url is not an http or https URL without credentials, query and fragment",
	} {
		if _, err := instance.ParseContextChange(json.RawMessage(context)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %q", context, err, want)
		}
	}
}

func FuzzParseContextChange(f *testing.F) {
	for _, seed := range []string{`{"active":false}`, `{"active":0}`, `{"license_type":"\u0000"}`, `null`, `[`, `{"sm_operator_credentials":{}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := instance.ParseContextChange(raw); err != nil && err.Error() == "" {
			t.Error("empty error")
		}
	})
}

func TestUpdateIdentity_EquivalentUpdates_HaveOneHash(t *testing.T) {
	t.Parallel()
	identity := func(change func(*instance.UpdateIdentity)) string {
		u := instance.UpdateIdentity{
			Plan: event.Plan{ID: "p"}, Context: event.Context{GlobalAccountID: "g"}, Sent: json.RawMessage(`{"a":1,"b":[2]}`),
			Effective: json.RawMessage(`{}`), Credentials: map[string]json.RawMessage{"x": json.RawMessage(`{"s":"1","t":2}`)},
		}
		change(&u)
		hash, err := u.Hash()
		require.NoError(t, err)
		return hash
	}
	want := identity(func(*instance.UpdateIdentity) {})
	if identity(func(u *instance.UpdateIdentity) {
		u.Sent, u.Credentials["x"] = json.RawMessage(`{ "b": [2.0], "a": 1e0 }`), json.RawMessage(`{"t":2,"s":"1"}`)
	}) != want {
		t.Error("the way it is written counts")
	}
	for name, change := range map[string]func(*instance.UpdateIdentity){
		"plan":        func(u *instance.UpdateIdentity) { u.Plan.ID = "q" },
		"context":     func(u *instance.UpdateIdentity) { u.Context.LicenseType = "l" },
		"sent":        func(u *instance.UpdateIdentity) { u.Sent = json.RawMessage(`{"a":2,"b":[2]}`) },
		"effective":   func(u *instance.UpdateIdentity) { u.Effective = json.RawMessage(`{"c":1}`) },
		"maintenance": func(u *instance.UpdateIdentity) { u.MaintenanceVersion = "1.0.0" },
		"credentials": func(u *instance.UpdateIdentity) { u.Credentials["x"] = json.RawMessage(`{"s":"2","t":2}`) },
	} {
		if identity(change) == want {
			t.Errorf("%s does not count", name)
		}
	}
}

func TestDescription_Suspension_IsNamed(t *testing.T) {
	t.Parallel()
	for kind, want := range map[event.OperationType]string{
		event.Deprovision: "suspension is waiting to start", event.Provision: "unsuspension is waiting to start",
	} {
		o := instance.Operation{Type: kind, Suspension: true, Progress: instance.Progress{State: event.Pending}}
		if got := o.LastOperation(instance.Outlook{}).Description; got != want {
			t.Errorf("%s is %q, want %q", kind, got, want)
		}
		o.SupersededBy = "another"
		if got := o.LastOperation(instance.Outlook{}).Description; got != "cancelled, because the removal of the runtime was requested" {
			t.Errorf("superseded %s is %q", kind, got)
		}
	}
}
