package worker

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Parameters returns the parameters of the order as a T, see [Operation.Parameters]. Its error names the parameter that does not fit.
func Parameters[T any](op Operation) (T, error) {
	var parameters T
	err := op.Parameters(&parameters)
	return parameters, err
}

// Details returns the details that a worker has saved as a T, see [Operation.Details]; the zero T if there are none. Its error names the
// member that does not fit.
func Details[T any](op Operation, worker string) (T, error) {
	var details T
	err := op.Details(worker, &details)
	return details, err
}

// decode decodes what belongs to an order. Its error names the field and what is allowed, without the value.
func decode(what string, raw json.RawMessage, into any) error {
	err := json.Unmarshal(raw, into)
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case err == nil:
		return nil
	case ok && wrong.Field != "":
		return fmt.Errorf("%s: %s is %s: want %s", what, wrong.Field, kindOf(wrong.Value), wrong.Type)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// kindOf returns the kind of a JSON value in an UnmarshalTypeError, which may name a number in full.
func kindOf(value string) string {
	switch value {
	case "string":
		return "a text"
	case "bool":
		return "a boolean"
	case "array":
		return "a list"
	case "object":
		return "an object"
	}
	return "a number"
}
