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

// Order is what a platform ordered.
type Order struct {
	PlanID string
	// PlatformRegion is the region in the path of the request; empty means the configured default.
	PlatformRegion string
	InstanceID     string
	UserID         string
	// Parameters is a JSON object, or empty.
	Parameters json.RawMessage
	// ShootID is eight or more random hexadecimal digits, from which the shoot's name is made.
	ShootID string
}

// Resolved is an order with everything that a runtime needs decided.
type Resolved struct {
	Plan Plan
	// PlatformRegion is never empty.
	PlatformRegion string
	Runtime        event.Runtime
	// Sent is the parameters as they were sent, and Effective those with all defaults; neither holds a secret.
	Sent, Effective json.RawMessage
	// Kubeconfig is the decoded kubeconfig of an own cluster, a secret; nil for other plans.
	Kubeconfig   []byte
	DashboardURL string
}

// ErrUnknownPlan says that a plan is not offered.
var ErrUnknownPlan = errors.New("the plan is not offered")

// members that the service itself decides, whatever an order says: an order could reach into another account with them.
var serverSide = []string{"targetSecret", "licence_type", "expired", "euAccess"}

// members whose values have to be whole numbers for the workers, whichever way JSON wrote them.
var wholeNumbers = []string{"autoScalerMin", "autoScalerMax", "volumeSizeGb", "maxSurge", "maxUnavailable"}

// understood are the members of parameters that somebody reads.
var understood = slices.Concat(serverSide, changeable, settled, []string{"components"})

// dropMisspelt removes the members that differ from a known one only in upper and lower case. Readers of JSON in Go would take
// them for that one, and no check has seen them.
func dropMisspelt(m map[string]any) {
	maps.DeleteFunc(m, func(name string, _ any) bool {
		return !slices.Contains(understood, name) &&
			slices.ContainsFunc(understood, func(k string) bool { return strings.EqualFold(k, name) })
	})
}

// Resolve checks an order and fills in the defaults of its plan. It returns ErrUnknownPlan, or Problems that name each
// bad member.
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

// resolution is one run of Resolve.
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
	// Where the plan does not know a kubeconfig it is dropped too, however it is written: it is a secret in any case.
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

// runtime decides provider, region, names and the address of the dashboard.
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

// size decides machines and their number. Zones, surge and purpose that the order leaves out are the provisioner's to choose.
func (r *resolution) size() Problems {
	sized := []string{"machineType", "autoScalerMin", "autoScalerMax", "volumeSizeGb", "maxSurge", "maxUnavailable"}
	if r.spec.Name == OwnCluster {
		drop(r.eff, append(sized, "zones", "purpose", "region")...)
		return nil
	}
	n := r.spec.nodes
	if n.fixed {
		// A plan of fixed size takes no part of an order about its size.
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
	return nil
}

func defaulted(sent bool) string {
	if sent {
		return ""
	}
	return ", the plan's default"
}

// volume is the size of a worker's disk in GB; a GCP trial has a smaller one (facts/keb.md 2.4).
func (r *resolution) volume() int {
	if r.spec.Name == Trial && r.provider == ProviderGCP {
		return 30
	}
	return r.spec.volumeGB
}

// logon decides who may log on to the runtime.
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

// version lets only an order with on-demand versions choose the Kyma version. Without a choice the workers decide.
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

// maxParameters bounds the parameters in bytes: they travel with every command of the operation.
const maxParameters = 64 << 10

// checkSize bounds parameters as they are stored, where a number such as 1e308 has 309 digits.
func checkSize(sent, effective json.RawMessage) error {
	if max(event.StoredSize(sent), event.StoredSize(effective)) > maxParameters {
		return Problems{problem("", "must be at most %d bytes, with defaults and with all digits of each number", maxParameters)}
	}
	return nil
}

// shootName is seven digits of the id, with a letter in front where there is none (facts/keb.md 1.5).
func shootName(id string) string {
	id = strings.ReplaceAll(strings.ToLower(id), "-", "")
	id = id[:min(7, len(id))]
	if id == "" || id[0] < 'a' || id[0] > 'z' {
		return "c-" + id
	}
	return id
}

// maxNumber is the longest number in bytes as it is stored. A double has 309 digits at most before its point, and 324 behind it are not
// yet 0; Postgres refuses numbers with more than 16,383 digits behind the point.
const maxNumber = 400

// checkNumbers refuses numbers that other readers of the parameters could not take: those beyond a double.
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

// wholeNumber reads 3, 3.0 and 3e0 alike. The schema has bounded the value before.
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
