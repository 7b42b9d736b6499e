package extclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// GraphQLRequest is one GraphQL operation whose field is aliased as "result".
type GraphQLRequest struct {
	// Name is the name of the operation in errors, for example "provisionRuntime".
	Name      string
	Query     string
	Variables map[string]any
	Header    http.Header
	Sensitive bool
}

// GraphQLError is the first error of a GraphQL answer, with the extensions of docs/contracts/runtime-provisioner.md#errors.
type GraphQLError struct {
	System string
	// Name is the name of the request.
	Name string
	// Code is error_code; 0 if it is missing.
	Code int
	// Reason and Component are error_reason and error_component.
	Reason    string
	Component string
	// Message is the system's message, shortened and without secrets.
	Message string
}

// ReasonNotFound is the error_reason of a missing object.
const ReasonNotFound = "err_db_not_found"

// Error returns the operation and the system's message.
func (e *GraphQLError) Error() string {
	text := fmt.Sprintf("%s: %s: code %d", e.System, e.Name, e.Code)
	if e.Reason != "" {
		text += " (" + e.Reason + ")"
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// ErrorComponent returns the system.
func (e *GraphQLError) ErrorComponent() string { return e.System }

// ErrorReason returns the reason of the system; empty if it gave none.
func (e *GraphQLError) ErrorReason() string { return e.Reason }

// NotFound reports whether the requested object does not exist.
func (e *GraphQLError) NotFound() bool { return e.Reason == ReasonNotFound }

// Temporary reports whether the operation may succeed later. It is false for a missing object and codes 400 to 499.
func (e *GraphQLError) Temporary() bool {
	return !e.NotFound() && (e.Code < http.StatusBadRequest || e.Code >= http.StatusInternalServerError)
}

// IsNotFound reports whether err means that the requested object does not exist. It is false for status 404, which means a wrong address
// of the GraphQL endpoint.
func IsNotFound(err error) bool {
	var e interface{ NotFound() bool }
	return errors.As(err, &e) && e.NotFound()
}

// GraphQL posts the operation to the base URL and decodes its result into the value that into points to. An answer with neither a
// result nor an error is an AnswerError. A status other than 200 is a temporary StatusError.
func (c *Client) GraphQL(ctx context.Context, req GraphQLRequest, into any) error {
	var got struct {
		Data struct {
			Result json.RawMessage `json:"result"`
		} `json:"data"`
		Errors []struct {
			Message    string `json:"message"`
			Extensions struct {
				Code      int    `json:"error_code"`
				Reason    string `json:"error_reason"`
				Component string `json:"error_component"`
			} `json:"extensions"`
		} `json:"errors"`
	}
	var sentSecrets []string
	err := c.Do(ctx, Request{
		Method: http.MethodPost, Header: req.Header, Sensitive: req.Sensitive,
		Body: map[string]any{"query": req.Query, "variables": req.Variables}, Accept: []int{http.StatusOK},
		name: req.Name, sentSecrets: &sentSecrets, contentType: "application/json; charset=utf-8",
	}, &got)
	if status, ok := errors.AsType[*StatusError](err); ok {
		status.graphQL = true
	}
	if err != nil {
		return fmt.Errorf("%s: %w", req.Name, err)
	}
	if len(got.Errors) > 0 {
		first := got.Errors[0]
		e := &GraphQLError{
			System: c.cfg.System, Name: req.Name, Code: first.Extensions.Code,
			Reason: word(first.Extensions.Reason, sentSecrets), Component: word(first.Extensions.Component, sentSecrets),
		}
		if !req.Sensitive {
			e.Message = Sanitize(without(first.Message, sentSecrets))
		}
		return e
	}
	if len(got.Data.Result) == 0 || string(got.Data.Result) == "null" {
		return &AnswerError{System: c.cfg.System, Method: http.MethodPost, Route: req.Name, Err: errors.New("neither data nor errors")}
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(got.Data.Result, into); err != nil {
		return &AnswerError{System: c.cfg.System, Method: http.MethodPost, Route: req.Name, Err: shape(err)}
	}
	return nil
}
