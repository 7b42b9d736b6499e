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

// Bindings holds the settings of an installation for service bindings.
type Bindings struct {
	// Plans are the names of the bindable plans, enabled or not. Empty means none.
	Plans []string
	// Rotatable are the names of the plans whose bindings can be rotated. It has no effect on plans that are not bindable.
	Rotatable []string
	// Expiration is the lifetime of a binding whose request sets none. MinExpiration and MaxExpiration limit the lifetime that a
	// request can set. Whole seconds.
	Expiration, MinExpiration, MaxExpiration time.Duration
}

// shortestToken is the minimum lifetime of a Kubernetes token.
const shortestToken = 10 * time.Minute

func (b Bindings) check(known []spec) error {
	var errs []error
	for what, names := range map[string][]string{
		"KEB_BINDABLE_PLANS: bindable plan": b.Plans, "KEB_BINDING_ROTATABLE_PLANS: plan with rotatable bindings": b.Rotatable,
	} {
		for _, name := range names {
			if !slices.ContainsFunc(known, func(s spec) bool { return s.Name == name }) {
				errs = append(errs, fmt.Errorf("%s: %q is not known; known plans are %s", what, name, strings.Join(PlanNames(), ", ")))
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
		errs = append(errs, fmt.Errorf("KEB_BINDING_MIN_EXPIRATION: expiration of bindings: the minimum %s must be at least %s, the minimum of Kubernetes", b.MinExpiration, shortestToken))
	}
	if b.Expiration < b.MinExpiration || b.Expiration > b.MaxExpiration {
		errs = append(errs, fmt.Errorf("KEB_BINDING_EXPIRATION: expiration of bindings: the default %s must be from the minimum %s to the maximum %s",
			b.Expiration, b.MinExpiration, b.MaxExpiration))
	}
	return errors.Join(errs...)
}

const expirationSeconds = "expiration_seconds"

// The schema allows no other member: a misspelled one would silently get the default.
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

// offerBindings sets the binding attributes of a plan in the catalog.
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

// IsBindable reports whether instances of the plan can be bound.
func (c *Catalog) IsBindable(planID string) bool {
	p, ok := KnownPlan(planID)
	return ok && slices.Contains(c.cfg.Bindings.Plans, p.Name)
}

// IsBindingRotatable reports whether bindings of the plan's instances can be rotated.
func (c *Catalog) IsBindingRotatable(planID string) bool {
	p, ok := KnownPlan(planID)
	return ok && slices.Contains(c.cfg.Bindings.Plans, p.Name) && slices.Contains(c.cfg.Bindings.Rotatable, p.Name)
}

// BindingExpiration reads the lifetime from the parameters of a binding. given is false if they set none; the default applies
// then. The error is Problems with each invalid member.
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
