package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
)

// Update holds an instance and the changes that a platform requests.
type Update struct {
	// PlanID is the instance's current plan, and NewPlanID the requested one; empty means unchanged.
	PlanID, NewPlanID string
	Runtime           event.Runtime
	// Sent and Effective are the instance's values of Resolved.
	Sent, Effective json.RawMessage
	// Parameters is a JSON object with the requested changes, or empty.
	Parameters json.RawMessage
	// Unsettled is a JSON object, or empty. Its keys are the effective parameters whose values in the runtime may differ from those
	// of the instance. Its values are ignored.
	Unsettled json.RawMessage
}

// Changed is an instance after an update.
type Changed struct {
	Plan Plan
	// Sent and Effective are as in Resolved.
	Sent, Effective json.RawMessage
	// Parameters is a JSON object with the values of the changed or unsettled effective parameters. It is nil if there are none.
	Parameters json.RawMessage
	// Kubeconfig is the decoded new kubeconfig of an own cluster, a secret. It is nil if the update contains none.
	Kubeconfig []byte
}

// ErrPlanChange means that the instance cannot change to the requested plan.
var ErrPlanChange = errors.New("the plan of this service instance cannot be changed to that one")

// changeable are the members that an update can change. For an own cluster only the last two apply.
var changeable = []string{
	"machineType", "autoScalerMin", "autoScalerMax", "maxSurge", "maxUnavailable", "oidc", "administrators", "kubeconfig",
}

// settled are the members that only the order can set.
var settled = []string{
	"name", "region", "provider", "shootName", "shootDomain", "volumeSizeGb", "purpose", "zones", "kymaVersion",
	"overridesVersion",
}

// scaled are the members that determine the size of a runtime.
var scaled = []string{"machineType", "autoScalerMin", "autoScalerMax", "maxSurge", "maxUnavailable"}

// ResolveUpdate validates an update and returns the instance after it (docs/contracts/plans.md#oidc-and-administrators). Omitted
// members keep their values. A member that only the order can set may be repeated but not changed. Unknown members, and those
// that the service decides, are ignored. It returns ErrUnknownPlan, ErrPlanChange, or Problems with each invalid member.
func (c *Catalog) ResolveUpdate(u Update) (*Changed, error) {
	from, known := findSpec(c.known, u.PlanID)
	if !known {
		return nil, ErrUnknownPlan
	}
	to, err := c.target(from, u)
	if err != nil {
		return nil, err
	}
	patch, err := c.patch(to, u.Parameters)
	if err != nil {
		return nil, err
	}
	sent, err := members(u.Sent)
	if err != nil {
		return nil, fmt.Errorf("parameters of the instance: %w", err)
	}
	before, err := members(u.Effective)
	if err != nil {
		return nil, fmt.Errorf("effective parameters of the instance: %w", err)
	}
	dropMisspelt(before)
	var unsettled map[string]any
	if len(u.Unsettled) > 0 {
		if unsettled, err = members(u.Unsettled); err != nil {
			return nil, fmt.Errorf("unsettled parameters of the instance: %w", err)
		}
	}
	r := revision{
		Changed: Changed{Plan: to.Plan},
		c:       c, to: to, moved: to.ID != from.ID, runtime: u.Runtime, patch: patch, sent: sent, before: before, eff: maps.Clone(before),
		unsettled: unsettled,
	}
	if err := r.revise(); err != nil {
		return nil, err
	}
	return &r.Changed, nil
}

func findSpec(known []spec, id string) (spec, bool) {
	i := slices.IndexFunc(known, func(s spec) bool { return s.ID == id })
	if i < 0 {
		return spec{}, false
	}
	return known[i], true
}

// target returns the plan of the instance after the update.
func (c *Catalog) target(from spec, u Update) (spec, error) {
	if u.NewPlanID == "" || u.NewPlanID == u.PlanID {
		return from, nil
	}
	to, known := findSpec(c.known, u.NewPlanID)
	if !known {
		return spec{}, ErrUnknownPlan
	}
	// Only the runtime of a free instance records its provider.
	if !slices.Contains(c.cfg.PlanChanges[from.Name], to.Name) || to.provider != u.Runtime.Provider {
		return spec{}, ErrPlanChange
	}
	return to, nil
}

// patch validates the parameters of an update with the schema of its plan.
func (c *Catalog) patch(to spec, raw json.RawMessage) (map[string]any, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, Problems{problem("", "must be a JSON object")}
	}
	if p := checkNumbers(doc, ""); p != nil {
		return nil, Problems{p}
	}
	if err := c.updates[to.ID].Validate(doc); err != nil {
		return nil, schemaProblems(err)
	}
	patch, ok := doc.(map[string]any)
	if !ok {
		return nil, Problems{problem("", "must be a JSON object")}
	}
	return patch, nil
}

// members decodes an object and keeps its numbers as they are written.
func members(raw json.RawMessage) (map[string]any, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	m, ok := doc.(map[string]any)
	if !ok {
		return nil, errors.New("not a JSON object")
	}
	return m, nil
}

// revision is the state of one ResolveUpdate call.
type revision struct {
	Changed
	c       *Catalog
	to      spec
	moved   bool
	runtime event.Runtime
	patch   map[string]any
	// sent and eff become the new parameters; before holds the current effective parameters.
	sent, eff, before map[string]any
	unsettled         map[string]any
}

func (r *revision) revise() error {
	found := r.checkSettled()
	if encoded, ok := r.patch["kubeconfig"].(string); ok && r.to.Name == OwnCluster {
		plain, p := decodeKubeconfig(encoded)
		if p != nil {
			found = append(found, p)
		}
		r.Kubeconfig = plain
	}
	delete(r.patch, "kubeconfig")
	if r.to.Name == OwnCluster || r.to.nodes.fixed {
		// As in an order, such a plan has no parameters for its size.
		drop(r.patch, scaled...)
	}
	if r.to.Name == OwnCluster {
		// The customer configures the logins to the cluster.
		drop(r.patch, "oidc")
	}
	for name, value := range r.patch {
		if name == "oidc" || !slices.Contains(changeable, name) {
			continue
		}
		if n, ok := value.(json.Number); ok {
			whole, err := wholeNumber(n)
			if err != nil {
				found = append(found, problem("/"+name, "must be a whole number"))
				continue
			}
			value = json.Number(fmt.Sprint(whole))
		}
		r.sent[name], r.eff[name] = value, value
	}
	found = append(append(found, r.logon()...), r.size()...)
	if len(found) > 0 {
		slices.SortStableFunc(found, func(a, b *Problem) int { return strings.Compare(a.Pointer, b.Pointer) })
		return found
	}
	return r.encode()
}

// checkSettled rejects changes of members that only the order can set.
func (r *revision) checkSettled() (found Problems) {
	for _, name := range settled {
		value, ok := r.patch[name]
		if !ok || sameValue(value, r.sent[name]) || sameValue(value, r.before[name]) {
			continue
		}
		found = append(found, problem("/"+name, "is settled when the instance is ordered, and cannot be changed by an update"))
	}
	return found
}

// sameValue compares JSON values: 1 and 1.0 are equal.
func sameValue(a, b any) bool {
	x, err := json.Marshal(a)
	if err != nil {
		return false
	}
	y, err := json.Marshal(b)
	return err == nil && osb.SameJSON(x, y)
}

// logon merges oidc. An empty or missing member keeps its value.
func (r *revision) logon() Problems {
	patch, ok := r.patch["oidc"].(map[string]any)
	if !ok {
		return nil
	}
	merge := func(from any) map[string]any {
		merged, _ := from.(map[string]any)
		merged = maps.Clone(merged)
		if merged == nil {
			merged = make(map[string]any, len(patch))
		}
		for name, value := range patch {
			list, isList := value.([]any)
			if value != "" && (!isList || len(list) > 0) {
				merged[name] = value
			}
		}
		return merged
	}
	raw, err := json.Marshal(merge(r.eff["oidc"]))
	if err != nil {
		return Problems{problem("/oidc", "must be an object")}
	}
	var oidc OIDC
	if err := json.Unmarshal(raw, &oidc); err != nil {
		return Problems{problem("/oidc", "must be an object of strings, with signingAlgs an array of strings")}
	}
	oidc = oidc.withDefaults(r.c.cfg.OIDC)
	if found := oidc.check(); len(found) > 0 {
		return found
	}
	r.sent["oidc"], r.eff["oidc"] = merge(r.sent["oidc"]), oidc
	return nil
}

// size validates the machine type and the number of nodes, including values of the instance.
func (r *revision) size() Problems {
	if r.to.Name == OwnCluster || r.to.nodes.fixed {
		return nil
	}
	if found := r.movedSize(); len(found) > 0 {
		return found
	}
	if found := r.rolling(); len(found) > 0 {
		return found
	}
	lowest, lowestKnown := number(r.eff["autoScalerMin"])
	highest, highestKnown := number(r.eff["autoScalerMax"])
	if !lowestKnown || !highestKnown || lowest <= highest {
		return nil
	}
	stored := func(name string) string {
		if _, ok := r.patch[name]; ok {
			return ""
		}
		return ", the current value"
	}
	return Problems{problem("/autoScalerMin", "(%d%s) must not be greater than /autoScalerMax (%d%s)",
		lowest, stored("autoScalerMin"), highest, stored("autoScalerMax"))}
}

// rolling validates the size of rolling updates, if the update changes it.
func (r *revision) rolling() Problems {
	_, surgeSent := r.patch["maxSurge"]
	_, unavailableSent := r.patch["maxUnavailable"]
	surge, known := number(r.eff["maxSurge"])
	unavailable, _ := number(r.eff["maxUnavailable"])
	if !known || !surgeSent && !unavailableSent {
		return nil
	}
	return checkRolling(surge, unavailable)
}

// movedSize adapts the size of an instance to its new plan. Values that the customer never set become the plan's defaults. Values
// that the customer set must be allowed in the new plan.
func (r *revision) movedSize() Problems {
	if !r.moved {
		return nil
	}
	preset := map[string]int{"autoScalerMin": r.to.nodes.defaultMin, "autoScalerMax": r.to.nodes.defaultMax}
	kept := make(map[string]any)
	for _, name := range []string{"machineType", "autoScalerMin", "autoScalerMax"} {
		if value, chosen := r.sent[name]; chosen {
			// A plan with a fixed size ignored this value.
			kept[name], r.eff[name] = value, value
			if whole, ok := number(value); ok {
				r.eff[name] = json.Number(fmt.Sprint(whole))
			}
		} else if n, ok := preset[name]; ok {
			r.eff[name] = json.Number(fmt.Sprint(n))
		} else {
			kept[name] = r.eff[name]
		}
	}
	// The schema expects json.Number, which the instance's numbers also are.
	if err := r.c.updates[r.to.ID].Validate(kept); err != nil {
		if found, ok := errors.AsType[Problems](schemaProblems(err)); ok {
			return found
		}
		return Problems{problem("", "do not fit the new plan")}
	}
	return nil
}

func number(value any) (int64, bool) {
	n, ok := value.(json.Number)
	if !ok {
		return 0, false
	}
	whole, err := wholeNumber(n)
	return whole, err == nil
}

func (r *revision) encode() (err error) {
	if r.Sent, err = json.Marshal(r.sent); err != nil {
		return fmt.Errorf("encode parameters: %w", err)
	}
	if r.Effective, err = json.Marshal(r.eff); err != nil {
		return fmt.Errorf("encode parameters: %w", err)
	}
	if err := checkSize(r.Sent, r.Effective); err != nil {
		return err
	}
	// Compare the stored forms: here oidc is a struct, stored it is an object.
	after, err := members(r.Effective)
	if err != nil {
		return fmt.Errorf("encode parameters: %w", err)
	}
	changed := make(map[string]any)
	for name, value := range after {
		if _, unsettled := r.unsettled[name]; unsettled || !reflect.DeepEqual(value, r.before[name]) {
			changed[name] = value
		}
	}
	if len(changed) == 0 {
		return nil
	}
	if r.Parameters, err = json.Marshal(changed); err != nil {
		return fmt.Errorf("encode parameters: %w", err)
	}
	return nil
}
