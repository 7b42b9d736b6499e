package provisioner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/kyma-project/keb/libs/extclient"
)

// States of an operation of the Runtime Provisioner (docs/contracts/runtime-provisioner.md#transport).
const (
	StatePending    = "Pending"
	StateInProgress = "InProgress"
	StateSucceeded  = "Succeeded"
	StateFailed     = "Failed"
)

// OperationStatus is where an operation of the Runtime Provisioner stands.
type OperationStatus struct {
	ID        string     `json:"id"`
	Operation string     `json:"operation"`
	State     string     `json:"state"`
	Message   string     `json:"message"`
	RuntimeID string     `json:"runtimeID"`
	LastError *LastError `json:"lastError"`
}

// LastError is why an operation failed.
type LastError struct {
	Message   string `json:"errMessage"`
	Reason    string `json:"reason"`
	Component string `json:"component"`
}

// Running reports whether the operation has not ended.
func (s OperationStatus) Running() bool { return s.State == StatePending || s.State == StateInProgress }

// WithKyma reports whether the operation is one of 2020: those of a runtime without Kyma have other names. An upgrade of the cluster
// does not show it.
func (s OperationStatus) WithKyma() bool {
	return s.Operation == "Provision" || s.Operation == "Deprovision" || s.Operation == "Upgrade"
}

// Removal reports whether the operation removes the runtime.
func (s OperationStatus) Removal() bool {
	return s.Operation == "Deprovision" || s.Operation == "DeprovisionNoInstall"
}

// RuntimeStatus is what the Runtime Provisioner knows about a runtime.
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

// Removed reports whether the runtime is gone: the Runtime Provisioner keeps what it knew about it.
func (s RuntimeStatus) Removed() bool {
	return s.LastOperation.Removal() && s.LastOperation.State == StateSucceeded
}

// Client calls the Runtime Provisioner. Every method names the global account that the instance is in now as the tenant: after its
// subaccount was moved, the Runtime Provisioner moves the runtime with the next call.
type Client struct{ gql *extclient.Client }

// NewClient builds a client; it calls nobody.
func NewClient(cfg ClientConfig, deps extclient.Deps) (*Client, error) {
	gql, err := extclient.New(extclient.Config{
		System: component, BaseURL: cfg.ProvisionerURL, Timeout: cfg.ProvisionerTimeout,
	}, nil, deps)
	if err != nil {
		return nil, err
	}
	return &Client{gql: gql}, nil
}

// operationFields are those that the operations of 2020 have, too; errorField is new since.
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

// UpgradeShoot starts the change of a cluster. It is refused while another operation of the runtime is running.
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

// LastOperation is the last operation of a runtime. A runtime that is not there is an error for which
// extclient.IsNotFound is true.
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

// OperationStatus looks an operation up, with the last error of a failed one unless the runtime was ordered with Kyma: the Runtime
// Provisioner of 2020 refuses a query that names it.
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

// RuntimeStatus looks a runtime up. A runtime that is not there is an error for which extclient.IsNotFound is true.
func (c *Client) RuntimeStatus(ctx context.Context, account, runtimeID string) (RuntimeStatus, error) {
	var got RuntimeStatus
	err := c.gql.GraphQL(ctx, extclient.GraphQLRequest{
		Name: "runtimeStatus", Header: tenant(account), Variables: map[string]any{"id": runtimeID}, Sensitive: true,
		Query: `query($id: String!) { result: runtimeStatus(id: $id) { lastOperationStatus { ` + operationFields +
			` } runtimeConfiguration { kubeconfig clusterConfig { name region seed provider } } } }`,
	}, &got)
	return got, err
}

// director finds the runtimes that belong to an instance (docs/contracts/director.md).
type director struct{ gql *extclient.Client }

func newDirector(cfg Config, deps extclient.Deps) (*director, error) {
	tokens := extclient.ClientCredentials(extclient.TokenConfig{
		URL: cfg.DirectorTokenURL, ClientID: cfg.DirectorClientID, ClientSecret: cfg.DirectorClientSecret,
		Scopes: []string{"runtime:read", "runtime:write"},
	}, deps)
	gql, err := extclient.New(extclient.Config{System: componentDirector, BaseURL: cfg.DirectorURL, Timeout: cfg.DirectorTimeout}, tokens, deps)
	if err != nil {
		return nil, err
	}
	return &director{gql: gql}, nil
}

// labelInstance is the label that every runtime gets when it is created.
const labelInstance = "broker_instance_id"

// runtimeOf is the id of the instance's runtime, empty when there is none.
func (d *director) runtimeOf(ctx context.Context, account, instanceID string) (string, error) {
	// The filter's value is a JSON string inside a GraphQL string.
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
