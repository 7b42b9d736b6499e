package reconciler

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/kyma-project/keb/libs/extclient"
)

// The statuses of a cluster (docs/contracts/reconciler.md#statuses).
const (
	statusPending         = "reconcile_pending"
	statusReconciling     = "reconciling"
	statusRetryable       = "reconcile_error_retryable"
	statusReady           = "ready"
	statusError           = "error"
	statusDeletePending   = "delete_pending"
	statusDeleting        = "deleting"
	statusDeleteRetryable = "delete_error_retryable"
	statusDeleteError     = "delete_error"
	statusDeleted         = "deleted"
)

// cluster is the configuration of a runtime for the Reconciler.
type cluster struct {
	RuntimeID    string       `json:"runtimeID"`
	RuntimeInput runtimeInput `json:"runtimeInput"`
	KymaConfig   kymaConfig   `json:"kymaConfig"`
	Metadata     metadata     `json:"metadata"`
	// Kubeconfig is a secret.
	Kubeconfig string `json:"kubeconfig"`
}

type runtimeInput struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

type kymaConfig struct {
	Version        string      `json:"version"`
	Profile        string      `json:"profile"`
	Components     []component `json:"components"`
	Administrators []string    `json:"administrators"`
}

type component struct {
	Name      string `json:"component"`
	Namespace string `json:"namespace"`
	// URL is the address of an additional component's charts. The Reconciler requires the members URL and version.
	URL           string          `json:"URL"`
	Version       string          `json:"version"`
	Configuration []configuration `json:"configuration"`
}

type configuration struct {
	Key string `json:"key"`
	// Value is a string or a bool.
	Value  any  `json:"value"`
	Secret bool `json:"secret"`
}

type metadata struct {
	GlobalAccountID string `json:"globalAccountID"`
	SubAccountID    string `json:"subAccountID"`
	ServiceID       string `json:"serviceID"`
	ServicePlanID   string `json:"servicePlanID"`
	ServicePlanName string `json:"servicePlanName"`
	ShootName       string `json:"shootName"`
	InstanceID      string `json:"instanceID"`
	Region          string `json:"region"`
}

// state is the state of a cluster.
type state struct {
	Cluster              string    `json:"cluster"`
	ClusterVersion       int64     `json:"clusterVersion"`
	ConfigurationVersion int64     `json:"configurationVersion"`
	Status               string    `json:"status"`
	Failures             []failure `json:"failures"`
}

type failure struct {
	Component string `json:"component"`
	Reason    string `json:"reason"`
}

// problems returns the failures of a cluster in one line.
func (s state) problems() string {
	texts := make([]string, 0, len(s.Failures))
	for _, f := range s.Failures {
		texts = append(texts, extclient.Sanitize(f.Component)+": "+extclient.Sanitize(f.Reason))
	}
	return strings.Join(texts, ", ")
}

type client struct{ http *extclient.Client }

func newClient(cfg Config, deps extclient.Deps) (*client, error) {
	c, err := extclient.New(extclient.Config{System: "reconciler", BaseURL: cfg.URL, Timeout: cfg.Timeout}, nil, deps)
	return &client{http: c}, err
}

// apply sends the configuration of a runtime; the same configuration creates no new version.
func (c *client) apply(ctx context.Context, body cluster) (state, error) {
	var got state
	err := c.http.Do(ctx, extclient.Request{
		Method: http.MethodPost, Route: "/clusters", Body: body, Sensitive: true,
		Accept: []int{http.StatusOK, http.StatusCreated},
	}, &got)
	if err == nil && got.ConfigurationVersion == 0 {
		err = &extclient.AnswerError{System: "reconciler", Method: http.MethodPost, Route: "/clusters", Err: errors.New("configurationVersion is missing")}
	}
	return got, err
}

// delete starts the deregistration of a cluster; known is false if the Reconciler has no such cluster.
func (c *client) delete(ctx context.Context, runtimeID string) (got state, known bool, err error) {
	err = c.http.Do(ctx, extclient.Request{Method: http.MethodDelete, Route: "/clusters/{runtimeID}", Params: []string{runtimeID}}, &got)
	if extclient.IsStatus(err, http.StatusNotFound) {
		return state{}, false, nil
	}
	return got, err == nil, err
}

// status returns the state of one configuration version of a cluster.
func (c *client) status(ctx context.Context, runtimeID string, version int64) (state, error) {
	const route = "/clusters/{runtimeID}/configs/{version}/status"
	var got state
	err := c.http.Do(ctx, extclient.Request{
		Method: http.MethodGet, Route: route, Params: []string{runtimeID, strconv.FormatInt(version, 10)}, Accept: []int{http.StatusOK},
	}, &got)
	if err == nil && got.Status == "" {
		err = &extclient.AnswerError{System: "reconciler", Method: http.MethodGet, Route: route, Err: errors.New("status is missing")}
	}
	return got, err
}
