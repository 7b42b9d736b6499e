package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// component is the system in the errors that an operator reads.
const component = "hello-world"

// maxAnswer is the maximum size of an answer in bytes.
const maxAnswer = 64 << 10

// HelloWorldStep calls an external service, saves a part of the answer, and passes another part to the final step.
type HelloWorldStep struct {
	client *http.Client
	url    string
}

// NewHelloWorldStep creates the step; client needs a timeout.
func NewHelloWorldStep(client *http.Client, url string) *HelloWorldStep {
	return &HelloWorldStep{client: client, url: url}
}

// Name returns the name in overlay/hello-world.yaml.
func (s *HelloWorldStep) Name() string { return "Hello_World" }

// details are the data that this worker saves. They must not contain secrets.
type details struct {
	HelloWorlds string `json:"helloWorlds"`
}

type externalResponse struct {
	Data  string `json:"data"`
	Token string `json:"token"`
}

// Run may be repeated after a success: the stage starts again when another of its steps retries, and the overrides of the previous attempt
// are then lost. It is safe to call the service and to set the overrides again.
func (s *HelloWorldStep) Run(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	var saved details
	if err := op.Details(workerName, &saved); err != nil {
		return op, 0, err
	}
	log.Info("step started", "said_before", saved.HelloWorlds != "")

	body, status, err := s.get(ctx)
	switch {
	case err != nil:
		return worker.Retry(op, time.Second, &worker.Error{Component: component, Message: "call the greeter", Err: err})
	case status >= http.StatusInternalServerError:
		return worker.Retry(op, time.Second, httpError(status))
	case status != http.StatusOK:
		return worker.Fail(op, httpError(status))
	}
	var answer externalResponse
	if err := json.Unmarshal(body, &answer); err != nil {
		// Omit the decoder's error, because it may contain the token.
		return worker.Fail(op, &worker.Error{Component: component, Message: "the greeter's answer is not the JSON object expected"})
	}

	if err := op.SaveDetails(details{HelloWorlds: answer.Data}); err != nil {
		return op, 0, err
	}
	op.SetOverrides("component-name", []worker.Override{{Key: "some.key", Value: answer.Token, Secret: true}})
	return op, 0, nil
}

func (s *HelloWorldStep) get(ctx context.Context) (body []byte, status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, 0, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = response.Body.Close() }() // the body was read
	body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	return body, response.StatusCode, err
}

func httpError(status int) *worker.Error {
	return &worker.Error{
		Component: component, Reason: "err_http_status_code",
		Message: fmt.Sprintf("the greeter answered %d %s", status, http.StatusText(status)),
	}
}
