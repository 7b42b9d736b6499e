package process

import (
	"fmt"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/kyma-project/keb/libs/event"
)

// Variables of a condition. The types of the structs have the names of the variables.
const (
	varOperation   = "operation"
	varPlan        = "plan"
	varContext     = "context"
	varRuntime     = "runtime"
	varParameters  = "parameters"
	varDetails     = "details"
	varCredentials = "credentials"
	varUpdate      = "update"
	varUpgrade     = "upgrade"
)

var (
	variables = []string{
		varContext, varCredentials, varDetails, varOperation, varParameters, varPlan, varRuntime, varUpdate, varUpgrade,
	}
	structNames = []string{varContext, varOperation, varPlan, varRuntime, varUpdate, varUpgrade}
)

// provider describes the fields of the struct variables. CEL can then report a misspelt field when the process is loaded, and read a field
// without reflection.
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
	add(p, varOperation, "userAgent", func(o *event.Operation) string { return o.UserAgent })
	addBool(p, varOperation, "temporary", func(o *event.Operation) bool { return o.Temporary })
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
	addBool(p, varUpdate, "parameters", func(u *event.Changes) bool { return len(u.Parameters) > 0 })
	addBool(p, varUpdate, "licenseType", func(u *event.Changes) bool { return u.LicenseType })
	addBool(p, varUpdate, "plan", func(u *event.Changes) bool { return u.Plan })
	addField(p, varUpdate, "credentials", types.NewListType(types.StringType),
		func(u *event.Changes) []string { return u.Credentials }, func(names []string) bool { return len(names) > 0 })
	add(p, varUpgrade, "orchestrationId", func(u *event.Upgrade) string { return u.OrchestrationID })
	add(p, varUpgrade, "kymaVersion", func(u *event.Upgrade) string { return u.KymaVersion })
	add(p, varUpgrade, "kubernetesVersion", func(u *event.Upgrade) string { return u.KubernetesVersion })
	add(p, varUpgrade, "machineImage", func(u *event.Upgrade) string { return u.MachineImage })
	add(p, varUpgrade, "machineImageVersion", func(u *event.Upgrade) string { return u.MachineImageVersion })
	addBool(p, varUpgrade, "dryRun", func(u *event.Upgrade) bool { return u.DryRun })
	addBool(p, varUpgrade, "notification", func(u *event.Upgrade) bool { return u.Notification })
	return p, nil
}

func add[T any](p *provider, structName, field string, get func(T) string) {
	addField(p, structName, field, types.StringType, get, func(v string) bool { return v != "" })
}

func addBool[T any](p *provider, structName, field string, get func(T) bool) {
	addField(p, structName, field, types.BoolType, get, func(v bool) bool { return v })
}

// addField declares a field. has() reports whether it is set.
func addField[T, V any](p *provider, structName, field string, kind *types.Type, get func(T) V, set func(V) bool) {
	if p.fields[structName] == nil {
		p.fields[structName] = map[string]*types.FieldType{}
	}
	p.fields[structName][field] = &types.FieldType{
		Type: kind,
		IsSet: func(target any) bool {
			v, ok := target.(T)
			return ok && set(get(v))
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

// FindStructType returns the type of a struct variable.
func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if _, ok := p.fields[name]; ok {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Registry.FindStructType(name)
}

// FindStructFieldNames returns the fields of a struct variable.
func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	if names, ok := p.names[name]; ok {
		return names, true
	}
	return p.Registry.FindStructFieldNames(name)
}

// FindStructFieldType returns the type and the getter of a field.
func (p *provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if fields, ok := p.fields[name]; ok {
		f, ok := fields[field]
		return f, ok
	}
	return p.Registry.FindStructFieldType(name, field)
}

// NewValue rejects the construction of a struct inside a condition.
func (p *provider) NewValue(name string, fields map[string]ref.Val) ref.Val {
	if _, ok := p.fields[name]; ok {
		return types.NewErr("%s cannot be constructed in a condition", name)
	}
	return p.Registry.NewValue(name, fields)
}
