package process

import (
	"fmt"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/kyma-project/keb/libs/event"
)

// The variables of a condition. The structs' types are named like the variables.
const (
	varOperation   = "operation"
	varPlan        = "plan"
	varContext     = "context"
	varRuntime     = "runtime"
	varParameters  = "parameters"
	varDetails     = "details"
	varCredentials = "credentials"
)

var (
	variables   = []string{varContext, varCredentials, varDetails, varOperation, varParameters, varPlan, varRuntime}
	structNames = []string{varContext, varOperation, varPlan, varRuntime}
)

// provider knows the fields of the struct variables, so that a misspelt field is found when the process is loaded and
// a known one is read without reflection.
type provider struct {
	*types.Registry
	fields map[string]map[string]*types.FieldType
	names  map[string][]string
}

func newProvider() (*provider, error) {
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	p := &provider{Registry: registry, fields: map[string]map[string]*types.FieldType{}, names: map[string][]string{}}
	add(p, varOperation, "id", func(o *event.Operation) string { return o.ID })
	add(p, varOperation, "type", func(o *event.Operation) string { return string(o.Type) })
	add(p, varOperation, "instanceId", func(o *event.Operation) string { return o.InstanceID })
	add(p, varPlan, "id", func(v *event.Plan) string { return v.ID })
	add(p, varPlan, "name", func(v *event.Plan) string { return v.Name })
	add(p, varContext, "globalAccountId", func(c *event.Context) string { return c.GlobalAccountID })
	add(p, varContext, "subaccountId", func(c *event.Context) string { return c.SubaccountID })
	add(p, varContext, "userId", func(c *event.Context) string { return c.UserID })
	add(p, varContext, "platformRegion", func(c *event.Context) string { return c.PlatformRegion })
	add(p, varContext, "platform", func(c *event.Context) string { return c.Platform })
	add(p, varContext, "licenseType", func(c *event.Context) string { return c.LicenseType })
	add(p, varRuntime, "name", func(r *event.Runtime) string { return r.Name })
	add(p, varRuntime, "shootName", func(r *event.Runtime) string { return r.ShootName })
	add(p, varRuntime, "shootDomain", func(r *event.Runtime) string { return r.ShootDomain })
	add(p, varRuntime, "provider", func(r *event.Runtime) string { return r.Provider })
	add(p, varRuntime, "region", func(r *event.Runtime) string { return r.Region })
	return p, nil
}

// add declares a string field; has() on it asks whether it is set.
func add[T any](p *provider, structName, field string, get func(T) string) {
	if p.fields[structName] == nil {
		p.fields[structName] = map[string]*types.FieldType{}
	}
	p.fields[structName][field] = &types.FieldType{
		Type: types.StringType,
		IsSet: func(target any) bool {
			v, ok := target.(T)
			return ok && get(v) != ""
		},
		GetFrom: func(target any) (any, error) {
			v, ok := target.(T)
			if !ok {
				return nil, fmt.Errorf("%s.%s: unexpected value %T", structName, field, target)
			}
			return get(v), nil
		},
	}
	p.names[structName] = append(p.names[structName], field)
}

// FindStructType makes the struct variables known.
func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if _, ok := p.fields[name]; ok {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Registry.FindStructType(name)
}

// FindStructFieldNames lists the fields of a struct variable.
func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	if names, ok := p.names[name]; ok {
		return names, true
	}
	return p.Registry.FindStructFieldNames(name)
}

// FindStructFieldType returns how a field is read.
func (p *provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if fields, ok := p.fields[name]; ok {
		f, ok := fields[field]
		return f, ok
	}
	return p.Registry.FindStructFieldType(name, field)
}

// NewValue refuses to build one of the structs inside a condition.
func (p *provider) NewValue(name string, fields map[string]ref.Val) ref.Val {
	if _, ok := p.fields[name]; ok {
		return types.NewErr("%s cannot be made in a condition", name)
	}
	return p.Registry.NewValue(name, fields)
}
