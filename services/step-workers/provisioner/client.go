package provisioner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/kyma-project/keb/libs/extclient"
	"github.com/kyma-project/keb/libs/worker"
)

// The states of an operation of the Runtime Provisioner (docs/contracts/runtime-provisioner.md#transport).
const (
	StatePending    = "Pending"
	StateInProgress = "InProgress"
	StateSucceeded  = "Succeeded"
	StateFailed     = "Failed"
)

// OperationStatus is the status of an operation of the Runtime Provisioner.
type OperationStatus struct {
	ID        string     `json:"id"`
	Operation string     `json:"operation"`
	State     string     `json:"state"`
	Message   string     `json:"message"`
	RuntimeID string     `json:"runtimeID"`
	LastError *LastError `json:"lastError"`
}

// LastError is the cause of a failed operation.
type LastError struct {
	Message   string `json:"errMessage"`
	Reason    string `json:"reason"`
	Component string `json:"component"`
}

// Running reports whether the operation has not ended.
func (s OperationStatus) Running() bool { return s.State == StatePending || s.State == StateInProgress }

// err returns the error of an operation that ended without success.
func (s OperationStatus) err() error {
	switch l := s.LastError; {
	case s.State == StateSucceeded:
		return nil
	case s.State != StateFailed:
		return &worker.Error{
			Component: component, Reason: worker.ReasonState,
			Message: "the runtime provisioner's operation is in the unknown state " + extclient.Sanitize(s.State),
		}
	case l != nil && (l.Message != "" || l.Reason != ""):
		return &worker.Error{
			Component: cmp.Or(extclient.Sanitize(l.Component), component), Message: extclient.Sanitize(l.Message),
			Reason: cmp.Or(extclient.Sanitize(l.Reason), reasonNoLastError),
		}
	}
	return &worker.Error{
		Component: component, Reason: reasonNoLastError,
		Message: cmp.Or(extclient.Sanitize(s.Message), "the runtime provisioner gave no reason"),
	}
}

// reasonNoLastError is the reason of a failed operation without one.
const reasonNoLastError = "err_provisioner_nil_last_error"

// WithKyma reports whether the operation is that of a runtime with Kyma (contract of 2020). Without Kyma, operations have other names. An
// upgrade of the cluster has the same name in both cases.
func (s OperationStatus) WithKyma() bool {
	return s.Operation == "Provision" || s.Operation == "Deprovision" || s.Operation == "Upgrade"
}

// Removal reports whether the operation removes the runtime.
func (s OperationStatus) Removal() bool {
	return s.Operation == "Deprovision" || s.Operation == "DeprovisionNoInstall"
}

// RuntimeStatus is the state of a runtime in the Runtime Provisioner.
type RuntimeStatus struct {
	LastOperation OperationStatus `json:"lastOperationStatus"`
	Configuration struct {
		Cluster struct {
			Name     string `json:"name"`
			Region   string `json:"region"`
			Seed     string `json:"seed"`
			Provider string `json:"provider"`
		} `json:"clusterConfig"`
		// Kubeconfig is a secret.
		Kubeconfig string `json:"kubeconfig"`
	} `json:"runtimeConfiguration"`
}

// Removed reports whether the runtime is removed. The Runtime Provisioner keeps the data of removed runtimes.
func (s RuntimeStatus) Removed() bool {
	return s.LastOperation.Removal() && s.LastOperation.State == StateSucceeded
}

// Client calls the Runtime Provisioner. Every method sends the instance's current global account as the tenant. After the subaccount
// was moved, the Runtime Provisioner moves the runtime with the next call.
type Client struct{ gql *extclient.Client }

// NewClient creates a client. It sends no request.
func NewClient(cfg ClientConfig, deps extclient.Deps) (*Client, error) {
	gql, err := extclient.New(extclient.Config{
		System: component, BaseURL: cfg.ProvisionerURL, Timeout: cfg.ProvisionerTimeout,
	}, nil, deps)
	return &Client{gql: gql}, err
}

// operationFields also exist in the contract of 2020; errorField does not.
const (
	operationFields = `id operation state message runtimeID`
	errorField      = `lastError { errMessage reason component }`
)

func tenant(account string) http.Header { return http.Header{"Tenant": {account}} }

// ProvisionRuntime starts the creation of a runtime.
func (c *Client) ProvisionRuntime(ctx context.Context, account, subaccount string, input RuntimeInput) (OperationStatus, error) {
	header := tenant(account)
	header.Set("sub-account", subaccount)
	var got OperationStatus
	err := c.gql.GraphQL(ctx, extclient.GraphQLRequest{
		Name: "provisionRuntime", Header: header, Variables: map[string]any{"config": input},
		Query: `mutation($config: ProvisionRuntimeInput!) { result: provisionRuntime(config: $config) { ` + operationFields + ` } }`,
	}, &got)
	if err == nil && (got.ID == "" || got.RuntimeID == "") {
		err = &extclient.AnswerError{System: component, Method: http.MethodPost, Route: "provisionRuntime", Err: errors.New("id or runtimeID is missing")}
	}
	return got, err
}

// DeprovisionRuntime starts the removal of a runtime and returns the id of that operation.
func (c *Client) DeprovisionRuntime(ctx context.Context, account, runtimeID string) (string, error) {
	var id string
	err := c.gql.GraphQL(ctx, extclient.GraphQLRequest{
		Name: "deprovisionRuntime", Header: tenant(account), Variables: map[string]any{"id": runtimeID},
		Query: `mutation($id: String!) { result: deprovisionRuntime(id: $id) }`,
	}, &id)
	if err == nil && id == "" {
		err = &extclient.AnswerError{System: component, Method: http.MethodPost, Route: "deprovisionRuntime", Err: errors.New("the operation id is empty")}
	}
	return id, err
}

// UpgradeShoot starts an upgrade of a cluster. The Runtime Provisioner rejects it while another operation of the runtime runs.
func (c *Client) UpgradeShoot(ctx context.Context, account, runtimeID string, input UpgradeInput) (OperationStatus, error) {
	var got OperationStatus
	err := c.gql.GraphQL(ctx, extclient.GraphQLRequest{
		Name: "upgradeShoot", Header: tenant(account), Variables: map[string]any{"id": runtimeID, "config": input},
		Query: `mutation($id: String!, $config: UpgradeShootInput!) { result: upgradeShoot(id: $id, config: $config) { ` + operationFields + ` } }`,
	}, &got)
	if err == nil && got.ID == "" {
		err = &extclient.AnswerError{System: component, Method: http.MethodPost, Route: "upgradeShoot", Err: errors.New("id is missing")}
	}
	return got, err
}

// LastOperation returns the last operation of a runtime. For a missing runtime, extclient.IsNotFound reports true for the error.
func (c *Client) LastOperation(ctx context.Context, account, runtimeID string) (OperationStatus, error) {
	var got RuntimeStatus
	err := c.gql.GraphQL(ctx, extclient.GraphQLRequest{
		Name: "runtimeStatus", Header: tenant(account), Variables: map[string]any{"id": runtimeID},
		Query: `query($id: String!) { result: runtimeStatus(id: $id) { lastOperationStatus { ` + operationFields + ` } } }`,
	}, &got)
	if err == nil && got.LastOperation.ID == "" {
		err = &extclient.AnswerError{System: component, Method: http.MethodPost, Route: "runtimeStatus", Err: errors.New("lastOperationStatus is missing")}
	}
	return got.LastOperation, err
}

// OperationStatus returns an operation. It requests the last error only for a runtime without Kyma, because the Runtime Provisioner of 2020
// rejects a query with that field.
func (c *Client) OperationStatus(ctx context.Context, account, operationID string, withKyma bool) (OperationStatus, error) {
	fields := operationFields + " " + errorField
	if withKyma {
		fields = operationFields
	}
	var got OperationStatus
	err := c.gql.GraphQL(ctx, extclient.GraphQLRequest{
		Name: "runtimeOperationStatus", Header: tenant(account), Variables: map[string]any{"id": operationID},
		Query: `query($id: String!) { result: runtimeOperationStatus(id: $id) { ` + fields + ` } }`,
	}, &got)
	return got, err
}

// RuntimeStatus returns a runtime. For a missing runtime, extclient.IsNotFound reports true for the error.
func (c *Client) RuntimeStatus(ctx context.Context, account, runtimeID string) (RuntimeStatus, error) {
	var got RuntimeStatus
	err := c.gql.GraphQL(ctx, extclient.GraphQLRequest{
		Name: "runtimeStatus", Header: tenant(account), Variables: map[string]any{"id": runtimeID}, Sensitive: true,
		Query: `query($id: String!) { result: runtimeStatus(id: $id) { lastOperationStatus { ` + operationFields +
			` } runtimeConfiguration { kubeconfig clusterConfig { name region seed provider } } } }`,
	}, &got)
	return got, err
}

// director finds the runtimes of an instance (docs/contracts/director.md).
type director struct{ gql *extclient.Client }

func newDirector(cfg Config, deps extclient.Deps) (*director, error) {
	tokens := extclient.ClientCredentials(extclient.TokenConfig{
		URL: cfg.DirectorTokenURL, ClientID: cfg.DirectorClientID, ClientSecret: cfg.DirectorClientSecret,
		Scopes: []string{"runtime:read", "runtime:write"},
	}, deps)
	gql, err := extclient.New(extclient.Config{System: componentDirector, BaseURL: cfg.DirectorURL, Timeout: cfg.DirectorTimeout}, tokens, deps)
	return &director{gql: gql}, err
}

// labelInstance is the label with the instance id. Every runtime gets it at its creation.
const labelInstance = "broker_instance_id"

// runtimeOf returns the id of the instance's runtime; empty if there is none.
func (d *director) runtimeOf(ctx context.Context, account, instanceID string) (string, error) {
	// The filter's value is a JSON string in a GraphQL string.
	value, err := json.Marshal(instanceID)
	if err != nil {
		return "", fmt.Errorf("encode instance id: %w", err)
	}
	literal, err := json.Marshal(string(value))
	if err != nil {
		return "", fmt.Errorf("encode filter: %w", err)
	}
	var got struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	err = d.gql.GraphQL(ctx, extclient.GraphQLRequest{
		Name: "runtimes", Header: tenant(account),
		Query: `query { result: runtimes(filter: {key: "` + labelInstance + `", query: ` + string(literal) + `}) { data { id } } }`,
	}, &got)
	if err != nil || len(got.Data) == 0 {
		return "", err
	}
	return got.Data[0].ID, nil
}
