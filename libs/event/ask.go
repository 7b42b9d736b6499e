package event

import "encoding/json"

// Subjects of NATS request/reply: a question that needs an answer now. Requests and answers are JSON, are stored
// nowhere, and carry no CloudEvents attributes. An answer to a question that cannot be answered is an AskError.
const (
	// AskOperations asks the orchestrator where operations stand. OperationsRequest -> OperationsAnswer.
	AskOperations = "keb.ask.orchestrator.operations"
	// AskCredentials asks the broker for the credentials of an instance. CredentialsRequest -> CredentialsAnswer.
	AskCredentials = "keb.ask.broker.credentials" //nolint:gosec // a subject
)

// AskError is the answer to a question that cannot be answered.
type AskError struct {
	// Error is for people; empty in every other answer.
	Error string `json:"error"`
}

// OperationsRequest asks for the status of operations, at most 500 at once.
type OperationsRequest struct {
	IDs []string `json:"ids"`
}

// OperationsAnswer holds the status of each operation asked for that the orchestrator knows.
type OperationsAnswer struct {
	Operations []OperationStatus `json:"operations"`
}

// OperationStatus is where an operation stands.
type OperationStatus struct {
	OperationID string         `json:"operationId"`
	State       OperationState `json:"state"`
	Cursor      int64          `json:"cursor"`
	// Position is absent unless the operation is in progress.
	Position *Position `json:"position,omitempty"`
	// Message and Error are those of the last step result.
	Message      string   `json:"message,omitempty"`
	Error        *Error   `json:"error,omitempty"`
	NotCompleted []string `json:"notCompleted,omitempty"`
}

// CredentialsRequest claims one kind of sealed credentials of an instance, for a step of a running operation.
type CredentialsRequest struct {
	InstanceID  string `json:"instanceId"`
	OperationID string `json:"operationId"`
	// Name is one of the names in Operation.Credentials.
	Name string `json:"name"`
}

// CredentialsAnswer holds the credentials in the clear.
type CredentialsAnswer struct {
	Credentials json.RawMessage `json:"credentials"`
}
