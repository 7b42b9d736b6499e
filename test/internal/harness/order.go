package harness

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/osb/osbclient"
)

// What the broker of keb up offers (docs/platform.md).
const (
	ServiceID      = "47c9dcbf-ff30-448e-ab36-d3bad66ba281"
	PlanAzure      = "4deee563-e5ec-4731-b9b1-53b42d855f0c"
	PlanAWS        = "361c511f-f939-4621-b228-d0fb79a1fe15"
	PlanTrial      = "7d55d31d-35ae-4438-bf13-6ffdfa107d9f"
	PlanOwnCluster = "03e3cb66-a4c6-4c6a-b4b0-5d42224debea"
)

// Order is a runtime that a platform orders: an instance with an account of its own.
type Order struct {
	InstanceID, GlobalAccount, Subaccount string
	PlanID                                string
	// ClientID and ClientSecret are in the sm_operator_credentials; without a ClientID there are none.
	ClientID, ClientSecret string
	Parameters             map[string]any
}

// Azure is an order of plan azure with everything that a customer can choose.
func Azure() *Order {
	return &Order{
		InstanceID: uuid.NewString(), GlobalAccount: uuid.NewString(), Subaccount: uuid.NewString(), PlanID: PlanAzure,
		ClientID: "client", ClientSecret: "secret",
		Parameters: map[string]any{
			"name": "azure-e2e", "region": "westeurope", "machineType": "Standard_D4_v3", "autoScalerMin": 3, "autoScalerMax": 10,
			"oidc": map[string]any{
				"clientID": "9bd05ed7-a930-44e6-8c79-e6defeb7dec9", "issuerURL": "https://kyma.accounts.example.com",
				"groupsClaim": "groups", "usernameClaim": "sub", "usernamePrefix": "-", "signingAlgs": []string{"RS256"},
			},
			"administrators": []string{"jane.doe@example.com"},
		},
	}
}

// Trial is an order of plan trial.
func Trial() *Order {
	o := Azure()
	o.PlanID, o.Parameters = PlanTrial, map[string]any{"name": "trial-e2e"}
	return o
}

// Body is the order as an OSB request.
func (o *Order) Body() osbclient.Provisioning {
	context := map[string]any{"globalaccount_id": o.GlobalAccount, "subaccount_id": o.Subaccount, "user_id": "jane.doe@example.com"}
	if o.ClientID != "" {
		context["sm_operator_credentials"] = map[string]any{
			"clientid": o.ClientID, "clientsecret": o.ClientSecret, "sm_url": "https://service-manager.example.com",
			"url": "https://token.example.com", "xsappname": "example-app",
		}
		// What Kyma 1 uses in place of them.
		context["sm_platform_credentials"] = map[string]any{
			"url": "https://service-manager.example.com", "credentials": map[string]any{
				"basic": map[string]any{"username": o.ClientID, "password": o.ClientSecret},
			},
		}
	}
	return osbclient.Provisioning{ServiceID: ServiceID, PlanID: o.PlanID, Context: context, Parameters: o.Parameters}
}

// OSBURL is the base URL of the OSB API for a platform region.
func (s *System) OSBURL() string { return "http://" + s.OSBAddr + "/oauth/cf-eu10" }

// Platform is a client of the OSB API.
func (s *System) Platform() *osbclient.Client {
	s.t.Helper()
	client, err := osbclient.New(osbclient.Config{
		BaseURL: s.OSBURL(), User: "keb", Password: cmp.Or(s.password, "keb"), PollEvery: 20 * time.Millisecond, PollAtMost: 50 * time.Millisecond,
	}, s.HTTP)
	require.NoError(s.t, err)
	return client
}

// Provision places the order, and returns the id of the operation.
func (s *System) Provision(o *Order) string {
	s.t.Helper()
	return s.accepted(s.Platform().Provision(s.t.Context(), o.InstanceID, o.Body()))
}

// Deprovision asks for the removal, and returns the id of the operation.
func (s *System) Deprovision(o *Order) string {
	s.t.Helper()
	return s.accepted(s.Platform().Deprovision(s.t.Context(), o.InstanceID, ServiceID, o.PlanID))
}

// Update asks for a change, and returns the id of the operation. The service of the change is filled in.
func (s *System) Update(o *Order, change osbclient.Change) string {
	s.t.Helper()
	change.ServiceID = ServiceID
	return s.accepted(s.Platform().Update(s.t.Context(), o.InstanceID, change))
}

// UpdateAtOnce asks for a change that is made without an operation.
func (s *System) UpdateAtOnce(o *Order, change osbclient.Change) {
	s.t.Helper()
	change.ServiceID = ServiceID
	answer, err := s.Platform().Update(s.t.Context(), o.InstanceID, change)
	require.NoError(s.t, err)
	if answer.Async || answer.Operation != "" {
		s.t.Fatalf("answer %+v, want 200 without an operation", answer)
	}
}

func (s *System) accepted(answer *osbclient.Answer, err error) string {
	s.t.Helper()
	require.NoError(s.t, err)
	if !answer.Async || answer.Operation == "" {
		s.t.Fatalf("answer %+v, want 202 with an operation", answer)
	}
	return answer.Operation
}

// PollEnd polls as a platform does until the operation has ended, and fails the test unless it ended in that state.
func (s *System) PollEnd(o *Order, operation string, want osb.State, within time.Duration) *osb.LastOperation {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), within)
	defer cancel()
	last, err := s.Platform().Poll(ctx, o.InstanceID, operation, nil)
	require.NoErrorf(s.t, err, "poll instance %s", o.InstanceID)
	if last.State != want {
		s.t.Fatalf("instance %s ended in %s (%s), want %s", o.InstanceID, last.State, last.Description, want)
	}
	return last
}

// StatusOf is the status of an error of the OSB API, 0 for another error or none.
func StatusOf(err error) int {
	if e, ok := errors.AsType[*osb.Error](err); ok {
		return e.Status
	}
	return 0
}

// Gone is the status of what has been there.
const Gone = http.StatusGone
