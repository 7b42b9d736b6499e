package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/kyma-project/keb/libs/event"
)

// Order is an order of a platform.
type Order struct {
	PlanID string
	// PlatformRegion is the region in the path of the request. Empty means the default.
	PlatformRegion string
	InstanceID     string
	UserID         string
	// Parameters is a JSON object, or empty.
	Parameters json.RawMessage
	// ShootID consists of eight or more random hexadecimal digits. The shoot's name is derived from it.
	ShootID string
}

// Resolved is an order with all parameters that a runtime needs.
type Resolved struct {
	Plan Plan
	// PlatformRegion is never empty.
	PlatformRegion string
	Runtime        event.Runtime
	// Sent are the parameters as sent; Effective also contains all defaults. Neither contains a secret.
	Sent, Effective json.RawMessage
	// Kubeconfig is the decoded kubeconfig of an own cluster, a secret; nil for other plans.
	Kubeconfig   []byte
	DashboardURL string
}

// ErrUnknownPlan means that the plan is not offered.
var ErrUnknownPlan = errors.New("the plan is not offered")

// serverSide are the members that only the service sets. With them an order could access another account.
var serverSide = []string{"targetSecret", "licence_type", "expired", "euAccess"}

// wholeNumbers are the members that the workers read as integers, however the JSON represents them.
var wholeNumbers = []string{"autoScalerMin", "autoScalerMax", "volumeSizeGb", "maxSurge", "maxUnavailable"}

// understood are the members of parameters that the service reads.
var understood = slices.Concat(serverSide, changeable, settled, []string{"components"})

// dropMisspelt removes members that differ from a known member only in case. JSON decoders in Go would accept them as that
// member, although the schema has not validated them.
func dropMisspelt(m map[string]any) {
	maps.DeleteFunc(m, func(name string, _ any) bool {
		return !slices.Contains(understood, name) &&
			slices.ContainsFunc(understood, func(k string) bool { return strings.EqualFold(k, name) })
	})
}

// Resolve validates an order and sets the defaults of its plan. It returns ErrUnknownPlan, or Problems with each invalid member.
func (c *Catalog) Resolve(o Order) (*Resolved, error) {
	region := c.PlatformRegion(o.PlatformRegion)
	offer, ok := c.variant(region).plans[o.PlanID]
	if !ok {
		return nil, ErrUnknownPlan
	}
	raw := o.Parameters
	if len(bytes.TrimSpace(raw)) == 0 || bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
		raw = json.RawMessage("{}")
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, Problems{problem("", "must be a JSON object")}
	}
	if p := checkNumbers(doc, ""); p != nil {
		return nil, Problems{p}
	}
	if err := offer.order.Validate(doc); err != nil {
		return nil, schemaProblems(err)
	}
	sent, ok := doc.(map[string]any)
	if !ok {
		return nil, Problems{problem("", "must be a JSON object")}
	}
	r := resolution{
		Resolved: Resolved{Plan: offer.spec.Plan, PlatformRegion: region},
		c:        c, spec: offer.spec, provider: offer.provider, eu: EUAccess(region), order: o, sent: sent,
	}
	if err := r.resolve(); err != nil {
		return nil, err
	}
	return &r.Resolved, nil
}

// resolution is the state of one Resolve call.
type resolution struct {
	Resolved
	c        *Catalog
	spec     spec
	provider string
	eu       bool
	order    Order
	sent     map[string]any
	eff      map[string]any
}

func (r *resolution) resolve() error {
	if encoded, ok := r.sent["kubeconfig"].(string); ok && r.spec.Name == OwnCluster {
		plain, p := decodeKubeconfig(encoded)
		if p != nil {
			return Problems{p}
		}
		r.Kubeconfig = plain
	}
	// A kubeconfig is always a secret, so drop it in any spelling, even if the plan has no such parameter.
	maps.DeleteFunc(r.sent, func(name string, _ any) bool { return strings.EqualFold(name, "kubeconfig") })

	r.eff = make(map[string]any, len(r.sent)+12)
	maps.Copy(r.eff, r.sent)
	dropMisspelt(r.eff)
	for _, name := range serverSide {
		delete(r.eff, name)
	}
	for _, name := range wholeNumbers {
		if n, ok := r.eff[name].(json.Number); ok {
			whole, err := wholeNumber(n)
			if err != nil {
				return Problems{problem("/"+name, "must be a whole number")}
			}
			r.eff[name] = whole
		}
	}
	r.runtime()
	found := append(r.size(), r.logon()...)
	if len(found) > 0 {
		return found
	}
	r.version()
	return r.encode()
}

// runtime sets the provider, the region, the names and the dashboard URL.
func (r *resolution) runtime() {
	r.Runtime.Name = text(r.sent, "name")
	r.DashboardURL = r.c.cfg.dashboard(r.order.InstanceID, r.spec.Name)
	if r.spec.Name == OwnCluster {
		r.Runtime.Provider = ProviderCustom
		r.Runtime.ShootName, r.Runtime.ShootDomain = text(r.sent, "shootName"), text(r.sent, "shootDomain")
		delete(r.eff, "provider")
		return
	}
	if r.spec.Name == Trial {
		if p := strings.ToLower(text(r.sent, "provider")); p != "" {
			r.provider = p
		}
		r.Runtime.Region = trialRegion(text(r.sent, "region"), r.PlatformRegion, r.provider, r.eu)
	} else if r.Runtime.Region = text(r.sent, "region"); r.Runtime.Region == "" {
		r.Runtime.Region = defaultRegion(r.spec.Name, r.provider, r.eu)
	}
	r.Runtime.Provider = r.provider
	r.Runtime.ShootName = shootName(r.order.ShootID)
	r.Runtime.ShootDomain = r.Runtime.ShootName + "." + r.c.cfg.ShootDomainSuffix
	r.eff["region"], r.eff["provider"] = r.Runtime.Region, r.provider
	r.eff["euAccess"] = r.eu
}

// size sets the machine type and the number of nodes. The provisioner chooses omitted zones, surge and purpose.
func (r *resolution) size() Problems {
	sized := []string{"machineType", "autoScalerMin", "autoScalerMax", "volumeSizeGb", "maxSurge", "maxUnavailable"}
	if r.spec.Name == OwnCluster {
		drop(r.eff, append(sized, "zones", "purpose", "region")...)
		return nil
	}
	n := r.spec.nodes
	if n.fixed {
		// A plan with a fixed size ignores the size in an order.
		drop(r.eff, sized...)
	}
	preset := func(name string, value any) {
		if _, ok := r.eff[name]; !ok {
			r.eff[name] = value
		}
	}
	_, minSent := r.eff["autoScalerMin"]
	_, maxSent := r.eff["autoScalerMax"]
	preset("machineType", defaultMachine[r.provider])
	preset("autoScalerMin", int64(n.defaultMin))
	preset("autoScalerMax", int64(n.defaultMax))
	if volume := r.volume(); volume > 0 {
		preset("volumeSizeGb", int64(volume))
	}
	lowest, _ := r.eff["autoScalerMin"].(int64)
	highest, _ := r.eff["autoScalerMax"].(int64)
	if lowest > highest {
		return Problems{problem("/autoScalerMin", "(%d%s) must not be greater than /autoScalerMax (%d%s)",
			lowest, defaulted(minSent), highest, defaulted(maxSent))}
	}
	surge, sent := r.eff["maxSurge"].(int64)
	unavailable, _ := r.eff["maxUnavailable"].(int64)
	if sent {
		return checkRolling(surge, unavailable)
	}
	return nil
}

// checkRolling rejects a size of a rolling update that could replace no node: Gardener rejects it only after the order is accepted. The
// default of maxSurge is never 0.
func checkRolling(surge, unavailable int64) Problems {
	if surge > 0 || unavailable > 0 {
		return nil
	}
	return Problems{problem("/maxSurge", "must be at least 1 unless /maxUnavailable is")}
}

func defaulted(sent bool) string {
	if sent {
		return ""
	}
	return ", the plan's default"
}

// volume returns the size of a worker's disk in GB. It is smaller for a GCP trial (docs/contracts/runtime-provisioner.md#values-of-a-plan).
func (r *resolution) volume() int {
	if r.spec.Name == Trial && r.provider == ProviderGCP {
		return 30
	}
	return r.spec.volumeGB
}

// logon sets the users of the runtime.
func (r *resolution) logon() Problems {
	oidc := r.c.cfg.OIDC
	if sent, ok := r.sent["oidc"]; ok {
		raw, err := json.Marshal(sent)
		if err != nil {
			return Problems{problem("/oidc", "must be an object")}
		}
		var own OIDC
		if err := json.Unmarshal(raw, &own); err != nil {
			return Problems{problem("/oidc", "must be an object of strings, with signingAlgs an array of strings")}
		}
		oidc = own.withDefaults(r.c.cfg.OIDC)
		if found := oidc.check(); len(found) > 0 {
			return found
		}
	}
	r.eff["oidc"] = oidc
	if _, ok := r.eff["administrators"]; !ok && r.order.UserID != "" {
		r.eff["administrators"] = []string{r.order.UserID}
	}
	return nil
}

// version keeps the Kyma version of an order only if on-demand versions are enabled. Without a version the workers choose.
func (r *resolution) version() {
	if !r.c.cfg.OnDemandVersions {
		drop(r.eff, "kymaVersion", "overridesVersion")
	}
}

func (r *resolution) encode() (err error) {
	if r.Sent, err = json.Marshal(r.sent); err != nil {
		return fmt.Errorf("encode parameters: %w", err)
	}
	if r.Effective, err = json.Marshal(r.eff); err != nil {
		return fmt.Errorf("encode parameters: %w", err)
	}
	return checkSize(r.Sent, r.Effective)
}

// maxParameters is the maximum size of the parameters in bytes. Each command of the operation contains them.
const maxParameters = 64 << 10

// checkSize limits the stored form of parameters, in which a number such as 1e308 has 309 digits.
func checkSize(sent, effective json.RawMessage) error {
	if max(event.StoredSize(sent), event.StoredSize(effective)) > maxParameters {
		return Problems{problem("", "must be at most %d bytes, with defaults and with all digits of each number", maxParameters)}
	}
	return nil
}

// shootName returns seven digits of the id. If none of them is a letter, it starts with one (docs/contracts/plans.md#names).
func shootName(id string) string {
	id = strings.ReplaceAll(strings.ToLower(id), "-", "")
	id = id[:min(7, len(id))]
	if id == "" || id[0] < 'a' || id[0] > 'z' {
		return "c-" + id
	}
	return id
}

// maxNumber is the maximum length of a stored number, in bytes. A double has at most 309 digits before the decimal point, and up to 324
// after it are significant. Postgres rejects numbers with more than 16,383 digits after the point.
const maxNumber = 400

// checkNumbers rejects numbers that do not fit into a double: other readers of the parameters could not decode them.
func checkNumbers(value any, pointer string) *Problem {
	switch v := value.(type) {
	case json.Number:
		if _, err := v.Float64(); err != nil || event.StoredSize([]byte(v)) > maxNumber {
			return problem(pointer, "must be a number that fits into 64 bits")
		}
	case map[string]any:
		for name, member := range v {
			if p := checkNumbers(member, pointer+pointerOf([]string{name})); p != nil {
				return p
			}
		}
	case []any:
		for i, item := range v {
			if p := checkNumbers(item, pointer+"/"+strconv.Itoa(i)); p != nil {
				return p
			}
		}
	}
	return nil
}

// wholeNumber decodes 3, 3.0 and 3e0 alike. The schema has already limited the value.
func wholeNumber(n json.Number) (int64, error) {
	if i, err := n.Int64(); err == nil {
		return i, nil
	}
	f, err := n.Float64()
	if err != nil || f != float64(int64(f)) {
		return 0, errors.New("not whole")
	}
	return int64(f), nil
}

func text(m map[string]any, name string) string {
	s, _ := m[name].(string)
	return s
}

func drop(m map[string]any, names ...string) {
	for name := range m {
		if slices.Contains(names, name) {
			delete(m, name)
		}
	}
}
