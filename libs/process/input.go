package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"github.com/kyma-project/keb/libs/event"
)

// Input contains the values that conditions read. It decodes parameters and details on first use, and keeps the result. It belongs to one
// operation, is not safe for concurrent use, and must be created again when Details changes.
type Input struct {
	Operation *event.Operation
	// Details is the saved data of the operation, a JSON object; empty means none.
	Details json.RawMessage

	parameters, details map[string]any
}

// activation resolves the variables of a condition. It is a separate type to keep the methods of cel.Activation out of Input.
type activation Input

// Parent is always nil.
func (a *activation) Parent() cel.Activation { return nil }

// ResolveName returns the value of a variable.
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case varOperation:
		return a.Operation, true
	case varPlan:
		return &a.Operation.Plan, true
	case varContext:
		return &a.Operation.Context, true
	case varRuntime:
		return &a.Operation.Runtime, true
	case varCredentials:
		return a.Operation.Credentials, true
	case varUpdate:
		if a.Operation.Update == nil {
			return &event.Changes{}, true
		}
		return a.Operation.Update, true
	case varUpgrade:
		if a.Operation.Upgrade == nil {
			return &event.Upgrade{}, true
		}
		return a.Operation.Upgrade, true
	case varParameters:
		return decoded(&a.parameters, name, a.Operation.Parameters), true
	case varDetails:
		return decoded(&a.details, name, a.Details), true
	}
	return nil, false
}

// decoded fills the cache on first use. An error is a CEL value that ends the evaluation.
func decoded(cache *map[string]any, name string, raw json.RawMessage) any {
	if *cache != nil {
		return *cache
	}
	object, err := decodeObject(raw)
	if err != nil {
		return types.WrapErr(fmt.Errorf("%s: %w", name, err))
	}
	*cache = object
	return object
}

func decodeObject(raw json.RawMessage) (map[string]any, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return map[string]any{}, nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case nil:
		return map[string]any{}, nil
	case map[string]any:
		return numbers(v).(map[string]any), nil
	}
	return nil, errors.New("not a JSON object")
}

// numbers converts whole JSON numbers to int64, so that a condition can compare them with 3 as well as with 3.0.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, err := v.Float64()
		if err != nil {
			return v.String()
		}
		return f
	case map[string]any:
		for k, e := range v {
			v[k] = numbers(e)
		}
	case []any:
		for i, e := range v {
			v[i] = numbers(e)
		}
	}
	return v
}
