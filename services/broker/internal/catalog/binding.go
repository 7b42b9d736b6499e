package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kyma-project/keb/libs/osb"
)

// Bindings is what an installation decides about service bindings.
type Bindings struct {
	// Plans are the names of the plans whose instances can be bound, enabled or not; none by default.
	Plans []string
	// Rotatable are the names of the plans whose bindings, if they are bindable, can be replaced by a new one with the same
	// parameters.
	Rotatable []string
	// Expiration is how long a binding lasts whose request does not say, and MinExpiration and MaxExpiration what a request
	// may say; whole seconds.
	Expiration, MinExpiration, MaxExpiration time.Duration
}

// shortestToken is the shortest lifetime that Kubernetes gives to a token.
const shortestToken = 10 * time.Minute

func (b Bindings) check(known []spec) error {
	var errs []error
	for what, names := range map[string][]string{
		"KEB_BINDABLE_PLANS: bindable plan": b.Plans, "KEB_BINDING_ROTATABLE_PLANS: plan with rotatable bindings": b.Rotatable,
	} {
		for _, name := range names {
			if !slices.ContainsFunc(known, func(s spec) bool { return s.Name == name }) {
				errs = append(errs, fmt.Errorf("%s: %q is not known; known are %s", what, name, strings.Join(PlanNames(), ", ")))
			}
		}
	}
	if len(b.Plans) == 0 {
		return errors.Join(errs...)
	}
	for _, d := range []time.Duration{b.Expiration, b.MinExpiration, b.MaxExpiration} {
		if d%time.Second != 0 {
			errs = append(errs, fmt.Errorf("KEB_BINDING_EXPIRATION and its bounds: expiration of bindings: %s is not a whole number of seconds", d))
		}
	}
	if b.MinExpiration < shortestToken {
		errs = append(errs, fmt.Errorf("KEB_BINDING_MIN_EXPIRATION: expiration of bindings: the minimum %s must be at least %s, the shortest of Kubernetes", b.MinExpiration, shortestToken))
	}
	if b.Expiration < b.MinExpiration || b.Expiration > b.MaxExpiration {
		errs = append(errs, fmt.Errorf("KEB_BINDING_EXPIRATION: expiration of bindings: the default %s must be from the minimum %s to the maximum %s",
			b.Expiration, b.MinExpiration, b.MaxExpiration))
	}
	return errors.Join(errs...)
}

const expirationSeconds = "expiration_seconds"

// bindingSchema is closed: what a request misspells would silently get the default.
func (b Bindings) schema() object {
	return object{
		"$schema": draft04, "type": "object", "additionalProperties": false,
		"properties": object{expirationSeconds: object{
			"type": "integer", "title": "Seconds until the kubeconfig expires",
			"minimum": int64(b.MinExpiration / time.Second), "maximum": int64(b.MaxExpiration / time.Second),
			"default": int64(b.Expiration / time.Second),
		}},
	}
}

// offerBindings puts into a plan what the catalog says about its bindings.
func (c *Catalog) offerBindings(compiled schemas, s spec, p *osb.Plan) error {
	bindable := slices.Contains(c.cfg.Bindings.Plans, s.Name)
	p.Bindable = &bindable
	if !bindable {
		return nil
	}
	schema, _, err := compiled.add(s, c.cfg.Bindings.schema())
	if err != nil {
		return err
	}
	p.Schemas.ServiceBinding = &osb.BindingSchemas{Create: &osb.InputSchema{Parameters: schema}}
	if slices.Contains(c.cfg.Bindings.Rotatable, s.Name) {
		yes := true
		p.BindingRotatable = &yes
	}
	return nil
}

// IsBindable tells whether instances of the plan with an id can be bound.
func (c *Catalog) IsBindable(planID string) bool {
	p, ok := KnownPlan(planID)
	return ok && slices.Contains(c.cfg.Bindings.Plans, p.Name)
}

// IsBindingRotatable tells whether the bindings of instances of the plan with an id can be rotated.
func (c *Catalog) IsBindingRotatable(planID string) bool {
	p, ok := KnownPlan(planID)
	return ok && slices.Contains(c.cfg.Bindings.Plans, p.Name) && slices.Contains(c.cfg.Bindings.Rotatable, p.Name)
}

// BindingExpiration reads the parameters of a binding: how long it is to last, and whether they say so; if not, it is the
// default. The error is Problems that name each bad member.
func (c *Catalog) BindingExpiration(parameters json.RawMessage) (expiration time.Duration, given bool, err error) {
	if len(parameters) == 0 {
		return c.cfg.Bindings.Expiration, false, nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(parameters))
	if err != nil {
		return 0, false, Problems{problem("", "must be a JSON object")}
	}
	if p := checkNumbers(doc, ""); p != nil {
		return 0, false, Problems{p}
	}
	members, ok := doc.(map[string]any)
	if !ok {
		return 0, false, Problems{problem("", "must be a JSON object")}
	}
	var unknown Problems
	for name := range members {
		if name != expirationSeconds {
			unknown = append(unknown, problem(pointerOf([]string{name}), "is not a parameter of bindings: there is only %s", expirationSeconds))
		}
	}
	if len(unknown) > 0 {
		slices.SortFunc(unknown, func(a, b *Problem) int { return strings.Compare(a.Pointer, b.Pointer) })
		return 0, false, unknown
	}
	if err := c.binding.Validate(doc); err != nil {
		return 0, false, schemaProblems(err)
	}
	number, given := members[expirationSeconds].(json.Number)
	if !given {
		return c.cfg.Bindings.Expiration, false, nil
	}
	seconds, err := wholeNumber(number)
	if err != nil {
		return 0, false, Problems{problem("/"+expirationSeconds, "must be a whole number")}
	}
	return time.Duration(seconds) * time.Second, true, nil
}
