package reconciler

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
	"github.com/kyma-project/keb/services/step-workers/btp"
	"github.com/kyma-project/keb/services/step-workers/kyma"
	"github.com/kyma-project/keb/services/step-workers/provisioner"
)

const (
	// serviceID is the only service of the catalog (docs/contracts/plans.md#service).
	serviceID = "47c9dcbf-ff30-448e-ab36-d3bad66ba281"
	// maxBody is the largest body that the Reconciler reads, in bytes (docs/contracts/reconciler.md#server).
	maxBody = 100_000
	// btpNamespace is where the BTP operator is installed unless the list of components has another namespace.
	btpNamespace = "kyma-system"
	// domainKey is the override that every component gets first.
	domainKey = "global.domainName"
)

// newCluster describes op's runtime. It is the same for the same order, components and overrides, so it can be sent again.
func newCluster(op worker.Operation, runtimeID, name string, kubeconfig []byte, overrides []worker.ComponentOverrides) (cluster, error) {
	var p struct {
		Administrators []string `json:"administrators"`
		Components     []string `json:"components"`
	}
	var decided kyma.Details
	if err := errors.Join(op.Parameters(&p), op.Details(kyma.Name, &decided)); err != nil {
		return cluster{}, err
	}
	if decided.Version == "" {
		return cluster{}, errors.New("no version of Kyma is saved: the worker kyma has decided on none")
	}
	administrators := append([]string{}, p.Administrators...)
	if len(administrators) == 0 && op.Context.UserID != "" {
		administrators = append(administrators, op.Context.UserID)
	}
	return cluster{
		RuntimeID:    runtimeID,
		RuntimeInput: runtimeInput{Name: name},
		KymaConfig: kymaConfig{
			Version: decided.Version, Profile: profile(op.Plan.Name), Administrators: administrators,
			Components: configured(op.Runtime.ShootDomain, enabled(op, decided.Components, p.Components), overrides),
		},
		Metadata: metadata{
			GlobalAccountID: op.Context.GlobalAccountID, SubAccountID: op.Context.SubaccountID, ServiceID: serviceID,
			ServicePlanID: op.Plan.ID, ServicePlanName: op.Plan.Name, ShootName: op.Runtime.ShootName,
			InstanceID: op.InstanceID, Region: op.Runtime.Region,
		},
		Kubeconfig: string(kubeconfig),
	}, nil
}

// clusterName is the name that the cluster was given first; a later order may have another.
func clusterName(op worker.Operation, d Details) (string, error) {
	var p struct {
		Name string `json:"name"`
	}
	if d.ClusterName != "" {
		return d.ClusterName, nil
	}
	if err := op.Parameters(&p); err != nil {
		return "", err
	}
	return provisioner.RuntimeName(cmp.Or(p.Name, op.Runtime.Name), op.InstanceID), nil
}

// profile is the size of Kyma's installation that a plan gets.
func profile(plan string) string {
	switch plan {
	case "azure_lite", "trial", "free", "own_cluster":
		return "Evaluation"
	}
	return "Production"
}

// disabled reports whether runtimes of a plan never get a component (docs/contracts/reconciler.md#components).
func disabled(plan, component string) bool {
	switch component {
	case "backup", "backup-init":
		return true
	case "nats-streaming", "knative-provisioner-natss":
		return plan == "azure" || plan == "azure_lite"
	case "knative-eventing-kafka":
		return plan != "azure" && plan != "azure_lite"
	case "connectivity", "connectivity-proxy", "application-connector":
		return plan == "own_cluster"
	}
	return false
}

// enabled are the components of Kyma's version that the runtime gets, in their order: without those that are disabled for the
// plan, and with those optional ones that were ordered.
func enabled(op worker.Operation, all []kyma.Component, ordered []string) []kyma.Component {
	wanted := func(name string) bool {
		switch name {
		case "kiali", "tracing":
			return slices.ContainsFunc(ordered, func(o string) bool { return strings.EqualFold(strings.TrimSpace(o), name) })
		case btp.Component:
			return slices.Contains(op.Credentials, event.CredentialsServiceManager)
		}
		return true
	}
	var list []kyma.Component
	for _, c := range all {
		if !disabled(op.Plan.Name, c.Name) && wanted(c.Name) {
			list = append(list, c)
		}
	}
	return list
}

// configured gives each component its overrides: the domain, those for all components, and its own. Where two have the same
// key, the Reconciler takes the later one. Overrides of other components are ignored.
func configured(domain string, list []kyma.Component, overrides []worker.ComponentOverrides) []component {
	byName := map[string][]worker.Override{}
	for _, o := range overrides {
		byName[o.Component] = append(byName[o.Component], o.Entries...)
	}
	components := make([]component, 0, len(list))
	for _, c := range list {
		entries := []configuration{{Key: domainKey, Value: domain}}
		entries = append(append(entries, converted(byName[""])...), converted(byName[c.Name])...)
		components = append(components, component{Name: c.Name, Namespace: c.Namespace, URL: c.URL, Configuration: entries})
	}
	return components
}

// converted are overrides as the Reconciler reads them: the texts "true" and "false" are booleans.
func converted(overrides []worker.Override) []configuration {
	entries := make([]configuration, 0, len(overrides))
	for _, o := range overrides {
		c := configuration{Key: o.Key, Value: o.Value, Secret: o.Secret}
		if o.Value == "true" || o.Value == "false" {
			c.Value = o.Value == "true"
		}
		entries = append(entries, c)
	}
	return entries
}

// btpKeys are the overrides without which the BTP operator cannot work.
var btpKeys = []string{
	"manager.secret.clientid", "manager.secret.clientsecret", "manager.secret.url", "manager.secret.sm_url", "manager.secret.tokenurl",
	"cluster.id", "manager.priorityClassName",
}

// btpValues are the values of btpKeys in a component; a later entry wins. Values that are no texts are missing.
func btpValues(c component) map[string]string {
	values := map[string]string{}
	for _, entry := range c.Configuration {
		if slices.Contains(btpKeys, entry.Key) {
			values[entry.Key], _ = entry.Value.(string)
		}
	}
	return values
}

// component finds a component by its name.
func (c cluster) component(name string) (component, bool) {
	at := slices.IndexFunc(c.KymaConfig.Components, func(part component) bool { return part.Name == name })
	if at < 0 {
		return component{}, false
	}
	return c.KymaConfig.Components[at], true
}

// check refuses a cluster whose BTP operator could not work, and one that is larger than the Reconciler reads.
func (c cluster) check() error {
	if operator, ok := c.component(btp.Component); ok {
		values := btpValues(operator)
		for _, key := range btpKeys {
			if values[key] == "" {
				return fmt.Errorf("the override %s of %s is missing or empty", key, btp.Component)
			}
		}
	}
	body, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode the configuration: %w", err)
	}
	if len(body) > maxBody {
		return fmt.Errorf("the configuration has %d bytes, the reconciler reads at most %d: there are too many overrides", len(body), maxBody)
	}
	return nil
}

// with is c with another BTP operator; every other component stays as it is.
func (c cluster) with(operator component) cluster {
	c.KymaConfig.Components = slices.Clone(c.KymaConfig.Components)
	for i, part := range c.KymaConfig.Components {
		if part.Name == operator.Name {
			c.KymaConfig.Components[i] = operator
			return c
		}
	}
	c.KymaConfig.Components = append(c.KymaConfig.Components, operator)
	return c
}

// newOperator is the BTP operator with the overrides of this stage, and whether there are any. It stands where Kyma's list of
// components has it, else where it was.
func newOperator(op worker.Operation, before component, overrides []worker.ComponentOverrides) (operator component, ok bool, err error) {
	at := slices.IndexFunc(overrides, func(o worker.ComponentOverrides) bool { return o.Component == btp.Component })
	if at < 0 {
		return component{}, false, nil
	}
	var decided kyma.Details
	if err := op.Details(kyma.Name, &decided); err != nil {
		return component{}, false, err
	}
	operator = component{
		Name: btp.Component, Namespace: cmp.Or(before.Namespace, btpNamespace), URL: before.URL, Version: before.Version,
		Configuration: converted(overrides[at].Entries),
	}
	for _, c := range decided.Components {
		if c.Name == btp.Component {
			operator.Namespace, operator.URL = c.Namespace, c.URL
		}
	}
	return operator, true, nil
}
