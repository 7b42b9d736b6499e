package instance_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/instance"
)

func TestIdentity_Notation_DoesNotMatter(t *testing.T) {
	t.Parallel()
	base := instance.Identity{
		ServiceID: "s", PlanID: "p", GlobalAccountID: "ga", SubaccountID: "sa", PlatformRegion: "cf-eu10",
		Parameters: json.RawMessage(`{"name":"n","autoScalerMin":3,"oidc":{"a":1,"b":2}}`),
	}
	hash := func(change func(*instance.Identity)) string {
		i := base
		change(&i)
		h, err := i.Hash()
		require.NoError(t, err)
		return h
	}
	want := hash(func(*instance.Identity) {})
	if got := hash(func(i *instance.Identity) {
		i.Parameters = json.RawMessage(" {\"oidc\": {\"b\":2, \"a\":1.0},\n\"autoScalerMin\": 3e0, \"name\": \"n\"}")
	}); got != want {
		t.Error("white space, order of members or the way of numbers counts")
	}
	for name, change := range map[string]func(*instance.Identity){
		"service":        func(i *instance.Identity) { i.ServiceID = "x" },
		"plan":           func(i *instance.Identity) { i.PlanID = "x" },
		"parameters":     func(i *instance.Identity) { i.Parameters = json.RawMessage(`{"name":"n"}`) },
		"organization":   func(i *instance.Identity) { i.Organization = "x" },
		"space":          func(i *instance.Identity) { i.Space = "x" },
		"global account": func(i *instance.Identity) { i.GlobalAccountID = "x" },
		"subaccount":     func(i *instance.Identity) { i.SubaccountID = "x" },
		"region":         func(i *instance.Identity) { i.PlatformRegion = "x" },
	} {
		if hash(change) == want {
			t.Errorf("another %s is the same order", name)
		}
	}
	none := hash(func(i *instance.Identity) { i.Parameters = nil })
	if hash(func(i *instance.Identity) { i.Parameters = json.RawMessage("{}") }) != none {
		t.Error("no parameters and empty ones differ")
	}
}

func TestParseContext_Invalid_NamesTheMembers(t *testing.T) {
	t.Parallel()
	const accounts = `"globalaccount_id":"g","subaccount_id":"s","user_id":"u"`
	for _, tc := range []struct{ context, want string }{
		{``, "context is required: an object with globalaccount_id, subaccount_id and user_id"},
		{`[]`, "context must be a JSON object"},
		{`{}`, "context/globalaccount_id is required; context/subaccount_id is required; context/user_id is required"},
		{`{"globalaccount_id":"","subaccount_id":" ","user_id":"u"}`, "context/globalaccount_id must not be empty; context/subaccount_id must not be empty"},
		{`{"globalaccount_id":1,"subaccount_id":"s","user_id":"u"}`, "context/globalaccount_id must be a string"},
		{`{` + accounts + `,"platform":"a\u0000b"}`, "context/platform must not hold control characters"},
		{`{` + accounts + `,"license_type":"` + strings.Repeat("x", 600) + `"}`, "context/license_type must be at most 512 bytes"},
		{`{` + accounts + `,"sm_operator_credentials":"CANARY"}`, "context/sm_operator_credentials must be an object of strings"},
		{`{` + accounts + `,"sm_platform_credentials":"CANARY"}`, "context/sm_platform_credentials must be an object with url and credentials"},
		{`{` + accounts + `,"sm_platform_credentials":{"url":"CANARY"}}`, "context/sm_platform_credentials lacks credentials.basic.username, credentials.basic.password"},
		{`{` + accounts + `,"sm_operator_credentials":{"clientid":"CANARY","url":"https://CANARY"}}`, "context/sm_operator_credentials: missing clientsecret, sm_url"},
		{
			`{` + accounts + `,"sm_operator_credentials":{"clientid":"CANARY\n","clientsecret":"CANARY","sm_url":"CANARY.com","url":"https://h/?CANARY"}}`,
			"context/sm_operator_credentials: clientid has white space around it or control characters; " +
				"sm_url is not an http or https URL without credentials, query and fragment; " +
				"url is not an http or https URL without credentials, query and fragment",
		},
	} {
		_, err := instance.ParseContext(json.RawMessage(tc.context), "cf-eu10")
		if err == nil || err.Error() != tc.want {
			t.Errorf("%.60s: %v, want %q", tc.context, err, tc.want)
		}
	}
}

func TestParseContext_Valid_ReturnsMembers(t *testing.T) {
	t.Parallel()
	got, err := instance.ParseContext(json.RawMessage(`{"globalaccount_id":"g","subaccount_id":"s","user_id":"U@E.org",
		"platform":"kubernetes","license_type":"TRIAL","tenant_id":7,"sm_operator_credentials":null}`), "cf-eu10")
	want := instance.Origin{Context: event.Context{
		GlobalAccountID: "g", SubaccountID: "s", UserID: "u@e.org", PlatformRegion: "cf-eu10", Platform: "kubernetes", LicenseType: "TRIAL",
	}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func FuzzParseContext(f *testing.F) {
	for _, seed := range []string{
		`{"globalaccount_id":"g","subaccount_id":"s","user_id":"u","sm_operator_credentials":{"clientid":"c"}}`, `null`, `[`, `{"user_id":{}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		o, err := instance.ParseContext(raw, "r")
		if err == nil && (o.GlobalAccountID == "" || o.SubaccountID == "" || o.UserID == "") {
			t.Errorf("%q gives %+v", raw, o)
		}
	})
}

func TestDescription_Running_ContainsNothingInternal(t *testing.T) {
	t.Parallel()
	for _, message := range []string{
		`Post "http://avs.kcp-system.svc.cluster.local:8080/api": dial tcp 10.0.0.7:8080: connect: connection refused`,
		`dial tcp: lookup provisioner on 10.96.0.10:53: no such host`,
		`dial tcp [fd00::1]:443: i/o timeout`,
		`Authorization: Bearer eyJhbGciOiJSUzI1NiJ9.e30.c2ln rejected, password=hunter2 token: abcdef`,
		`key AAAABBBBCCCCDDDDEEEEFFFFGGGGHHHHIIIIJJJJKKKK of avs.example.org is wrong`,
		`provisioner:3000 says no`,
	} {
		change := instance.StepFinished(event.StepFinished{
			Outcome: event.OutcomeRetry, Message: message,
			Error: &event.Error{Component: "provisioner", Reason: "err", Message: message},
			Next:  &event.Position{Stage: "create_runtime", Step: "Check_Runtime", StepAttempt: 3},
		})
		o := instance.Operation{Type: event.Provision, Progress: change.Progress}
		if told := o.LastOperation(instance.Outlook{}).Description; told != "provisioning: stage create runtime; delayed: the cluster cannot be created or changed "+
			"(the cause is on our side); it is tried again automatically" {
			t.Errorf("the customer is told %q", told)
		}
		got := o.Detail()
		if !strings.HasPrefix(got, "provisioning: stage create_runtime, step Check_Runtime, attempt 3: provisioner: ") {
			t.Errorf("description is %q", got)
		}
		for _, leak := range []string{"http", "svc", "10.", "fd00", "eyJ", "hunter2", "abcdef", "AAAABBBB", "avs.", ":3000", "on 10"} {
			if strings.Contains(got, leak) {
				t.Errorf("%q leaks %q", got, leak)
			}
		}
	}
	if got := instance.Public(strings.Repeat("ä", 600)); len(got) > 510 {
		t.Errorf("%d bytes", len(got))
	}
	if got := instance.Public("the cluster is not ready after 3 attempts"); got != "the cluster is not ready after 3 attempts" {
		t.Errorf("a harmless message became %q", got)
	}
}

func TestLastOperation_EachState_FollowsTheAPI(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	for _, tc := range []struct {
		name     string
		op       instance.Operation
		timedOut bool
		want     osb.LastOperation
	}{
		{
			"pending", operation(event.Provision, event.Pending), false,
			osb.LastOperation{State: osb.StateInProgress, Description: "provisioning is waiting to start"},
		},
		{
			"started", operation(event.Deprovision, event.InProgress), false,
			osb.LastOperation{State: osb.StateInProgress, Description: "deprovisioning is running"},
		},
		{
			"succeeded", operation(event.Provision, event.Succeeded), true,
			osb.LastOperation{State: osb.StateSucceeded, Description: "provisioning succeeded"},
		},
		{
			"failed", operation(event.Provision, event.Failed), false,
			osb.LastOperation{State: osb.StateFailed, Description: "provisioning failed"},
		},
		{
			"failed deprovisioning", operation(event.Deprovision, event.Failed), false,
			osb.LastOperation{State: osb.StateFailed, Description: "deprovisioning failed", InstanceUsable: &no},
		},
		{
			"failed update", operation(event.Update, event.Failed), false,
			osb.LastOperation{State: osb.StateFailed, Description: "update failed", InstanceUsable: &yes, UpdateRepeatable: &yes},
		},
		{
			"cancelled", operation(event.Provision, event.Cancelled), false,
			osb.LastOperation{State: osb.StateFailed, Description: "provisioning was cancelled"},
		},
		{
			"too long", operation(event.Provision, event.InProgress), true,
			osb.LastOperation{State: osb.StateFailed, Description: "provisioning took too long"},
		},
		{
			"superseded",
			instance.Operation{Type: event.Provision, SupersededBy: "d", Progress: instance.Progress{State: event.Succeeded}},
			false,
			osb.LastOperation{State: osb.StateFailed, Description: "cancelled, because the deletion of the instance was requested"},
		},
	} {
		if diff := cmp.Diff(tc.want, tc.op.LastOperation(instance.Outlook{TimedOut: tc.timedOut})); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}

func operation(t event.OperationType, s event.OperationState) instance.Operation {
	return instance.Operation{Type: t, Progress: instance.Progress{State: s}}
}

func TestMerge_TwoChanges_KeepsNewestAndNotCompleted(t *testing.T) {
	t.Parallel()
	change := func(cursor int64, state event.OperationState, open ...string) instance.Change {
		return instance.Change{OperationID: "o", Progress: instance.Progress{Cursor: cursor, State: state, NotCompleted: open}}
	}
	for _, tc := range []struct {
		name         string
		first, later instance.Change
		cursor       int64
		state        event.OperationState
		open         []string
	}{
		{"newer", change(1, event.InProgress, "a"), change(2, event.Succeeded, "b"), 2, event.Succeeded, []string{"a", "b"}},
		{"older", change(3, event.Failed), change(2, event.InProgress, "b"), 3, event.Failed, []string{"b"}},
		{"the end of a transition first", change(2, event.Succeeded), change(2, event.InProgress), 2, event.Succeeded, nil},
		{"the end of a transition last", change(2, event.InProgress), change(2, event.Succeeded), 2, event.Succeeded, nil},
	} {
		got := tc.first
		got.Merge(tc.later)
		if got.Cursor != tc.cursor || got.State != tc.state || !cmp.Equal(got.NotCompleted, tc.open) {
			t.Errorf("%s: %+v", tc.name, got)
		}
	}
}

func TestLastOperation_Customer_LearnsCauseAndSide(t *testing.T) {
	t.Parallel()
	running := instance.Operation{ID: "o-1", Type: event.Provision, Stages: []string{"start", "create_runtime", "check_runtime"}, Progress: instance.Progress{
		State: event.InProgress, Position: event.Position{Stage: "create_runtime", Step: "Create_Runtime"},
	}}
	with := func(state event.OperationState, e *event.Error) instance.Operation {
		o := running
		o.State, o.Error = state, e
		return o
	}
	depleted := &event.Error{Component: "gardener", Reason: "ERR_INFRA_RESOURCES_DEPLETED", Message: "zone 2 of shoot--kcp--c-123 at https://internal.example.org"}
	for _, c := range []struct {
		op   instance.Operation
		look instance.Outlook
		want string
	}{
		{running, instance.Outlook{}, "provisioning: stage 2 of 3 (create runtime)"},
		{running, instance.Outlook{Usual: 12*time.Minute + 10*time.Second, Elapsed: 5 * time.Minute}, "provisioning: stage 2 of 3 (create runtime); usually takes 12 minutes"},
		{
			running,
			instance.Outlook{Usual: 12 * time.Minute, Elapsed: 25 * time.Minute},
			"provisioning: stage 2 of 3 (create runtime); it takes longer than usual (12 minutes)",
		},
		{
			with(event.InProgress, depleted),
			instance.Outlook{},
			"provisioning: stage 2 of 3 (create runtime); delayed: the hyperscaler has no capacity for the machine type in the region " +
				"(the cause is on the hyperscaler's side); it is tried again automatically",
		},
		{
			with(event.Failed, depleted),
			instance.Outlook{},
			"provisioning failed in stage 2 of 3 (create runtime): the hyperscaler has no capacity for the machine type in the region. " +
				"The cause is on the hyperscaler's side. Choose another machine type or region, or repeat the request later. Operation: o-1",
		},
		{
			with(event.Failed, &event.Error{Component: "keb", Reason: "err_bad_request", Message: "the machine type is unknown"}),
			instance.Outlook{},
			"provisioning failed in stage 2 of 3 (create runtime): the parameters cannot be used: the machine type is unknown. " +
				"The cause is on your side. Correct them, and repeat the request. Operation: o-1",
		},
		{
			with(event.Failed, &event.Error{Component: "new-system", Reason: "err_x", Message: "panic in new-system"}),
			instance.Outlook{},
			"provisioning failed in stage 2 of 3 (create runtime): an internal error. The cause is on our side. " +
				"Repeat the request later. If it fails again, contact support with the ID of the operation. Operation: o-1",
		},
	} {
		if got := c.op.LastOperation(c.look).Description; got != c.want {
			t.Errorf("the customer is told %q, want %q", got, c.want)
		}
	}
}

// The page for platforms has every cause.
func TestCauses_Page_HasEach(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/platform.md")
	require.NoError(t, err)
	for _, c := range instance.Causes() {
		row := fmt.Sprintf("| %s | %s | %s |", c.Text, c.Side, c.Advice)
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/platform.md lacks the row:\n%s", row)
		}
	}
}
