package reconciler

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/btp"
	"github.com/kyma-project/keb/services/step-workers/kyma"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

const (
	componentNamespace = "kyma-system"
	// serviceID is the only service of the catalog (facts/keb.md 2.1).
	serviceID = "47c9dcbf-ff30-448e-ab36-d3bad66ba281"
)

// newCluster describes op's runtime. It is the same for the same order and overrides, so that it can be sent again.
func newCluster(cfg Config, op worker.Operation, runtimeID string, kubeconfig []byte, overrides []worker.ComponentOverrides) (cluster, error) {
	var p struct {
		Name           string   `json:"name"`
		KymaVersion    string   `json:"kymaVersion"`
		Administrators []string `json:"administrators"`
		Components     []string `json:"components"`
	}
	// The version that the worker kyma has decided on counts.
	var decided kyma.Details
	if err := errors.Join(op.Parameters(&p), op.Details(kyma.Name, &decided)); err != nil {
		return cluster{}, err
	}
	administrators := p.Administrators
	if len(administrators) == 0 && op.Context.UserID != "" {
		administrators = []string{op.Context.UserID}
	}
	profile := cfg.KymaProfile
	if op.Plan.Name == "trial" || op.Plan.Name == "free" {
		profile = "Evaluation"
	}
	name := provisioner.RuntimeName(cmp.Or(p.Name, op.Runtime.Name), op.InstanceID)
	return cluster{
		RuntimeID:    runtimeID,
		RuntimeInput: runtimeInput{Name: name},
		KymaConfig: kymaConfig{
			Version: cmp.Or(decided.Version, p.KymaVersion, cfg.KymaVersion), Profile: profile, Administrators: administrators,
			Components: components(append(slices.Clone(cfg.Components), p.Components...), overrides),
		},
		Metadata: metadata{
			GlobalAccountID: op.Context.GlobalAccountID, SubAccountID: op.Context.SubaccountID, ServiceID: serviceID,
			ServicePlanID: op.Plan.ID, ServicePlanName: op.Plan.Name, ShootName: op.Runtime.ShootName,
			InstanceID: op.InstanceID, Region: op.Runtime.Region,
		},
		Kubeconfig: string(kubeconfig),
	}, nil
}

// components are the named ones and those that have overrides of their own, each with the overrides for all components
// and its own, which win.
func components(names []string, overrides []worker.ComponentOverrides) []component {
	byName := map[string][]worker.Override{}
	for _, o := range overrides {
		byName[o.Component] = append(byName[o.Component], o.Entries...)
		if o.Component != "" {
			names = append(names, o.Component)
		}
	}
	global := byName[""]
	slices.Sort(names)
	names = slices.Compact(names)
	list := make([]component, 0, len(names))
	for _, name := range names {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		byKey := map[string]configuration{}
		for _, o := range append(slices.Clone(global), byName[name]...) {
			byKey[o.Key] = configuration{Key: o.Key, Value: o.Value, Secret: o.Secret}
		}
		entries := make([]configuration, 0, len(byKey))
		for _, key := range slices.Sorted(maps.Keys(byKey)) {
			entries = append(entries, byKey[key])
		}
		list = append(list, component{Name: name, Namespace: componentNamespace, Configuration: entries})
	}
	return list
}

// checkCredentials refuses a cluster whose BTP operator could not work: the credentials were ordered and are not all
// there.
func checkCredentials(op worker.Operation, c cluster) error {
	if !slices.Contains(op.Credentials, event.CredentialsServiceManager) {
		return nil
	}
	have := map[string]bool{}
	for _, component := range c.KymaConfig.Components {
		if component.Name != btp.Component {
			continue
		}
		for _, entry := range component.Configuration {
			have[entry.Key] = entry.Value != ""
		}
	}
	for _, key := range []string{"clientid", "clientsecret", "url", "sm_url", "tokenurl"} {
		if key = "manager.secret." + key; !have[key] {
			return fmt.Errorf("the override %s of %s is missing or empty", key, btp.Component)
		}
	}
	return nil
}
