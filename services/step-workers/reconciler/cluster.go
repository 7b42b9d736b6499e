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
	// maxBody is the maximum body size of the Reconciler in bytes (docs/contracts/reconciler.md#server).
	maxBody = 100_000
	// btpNamespace is the default namespace of the BTP operator.
	btpNamespace = "kyma-system"
	// domainKey is the first override of every component.
	domainKey = "global.domainName"
)

// newCluster returns the configuration of op's runtime. It depends only on the order, the components and the overrides, so that it can be
// sent again.
func newCluster(op worker.Operation, runtimeID, name string, kubeconfig []byte, overrides []worker.ComponentOverrides) (cluster, error) {
	var p struct {
		Components []string `json:"components"`
	}
	var decided kyma.Details
	admins, err := administrators(op)
	if err := errors.Join(err, op.Parameters(&p), op.Details(kyma.Name, &decided)); err != nil {
		return cluster{}, err
	}
	if decided.Version == "" {
		return cluster{}, errors.New("no version of Kyma is saved: the worker kyma selected none")
	}
	return cluster{
		RuntimeID:    runtimeID,
		RuntimeInput: runtimeInput{Name: name},
		KymaConfig: kymaConfig{
			Version: decided.Version, Profile: profile(op.Plan.Name), Administrators: admins,
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

// administrators returns the administrators of the instance, or the user of the order; it is empty, not nil, if there is neither.
func administrators(op worker.Operation) ([]string, error) {
	var p struct {
		Administrators []string `json:"administrators"`
	}
	if err := op.Parameters(&p); err != nil {
		return nil, err
	}
	if len(p.Administrators) == 0 && op.Context.UserID != "" {
		return []string{op.Context.UserID}, nil
	}
	return append([]string{}, p.Administrators...), nil
}

// clusterName returns the first name of the cluster; a later order may contain another name.
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

// profile returns the size of a plan's Kyma installation.
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

// enabled returns the runtime's components of Kyma's version in their order: without those that the plan disables, and with the ordered
// optional ones.
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

// configured adds the overrides to each component: the domain, those for all components, and its own. For a duplicate key, the
// Reconciler uses the later one. Overrides of other components are ignored.
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

// converted returns overrides in the format of the Reconciler: the texts "true" and "false" are booleans.
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

// btpKeys are the required overrides of the BTP operator.
var btpKeys = []string{
	"manager.secret.clientid", "manager.secret.clientsecret", "manager.secret.url", "manager.secret.sm_url", "manager.secret.tokenurl",
	"cluster.id", "manager.priorityClassName",
}

// btpValues returns the values of btpKeys in a component; a later entry takes precedence. It omits values that are not texts.
func btpValues(c component) map[string]string {
	values := map[string]string{}
	for _, entry := range c.Configuration {
		if slices.Contains(btpKeys, entry.Key) {
			values[entry.Key], _ = entry.Value.(string)
		}
	}
	return values
}

// component returns the component with that name.
func (c cluster) component(name string) (component, bool) {
	at := slices.IndexFunc(c.KymaConfig.Components, func(part component) bool { return part.Name == name })
	if at < 0 {
		return component{}, false
	}
	return c.KymaConfig.Components[at], true
}

// check rejects a configuration whose BTP operator lacks overrides, and one that is too large for the Reconciler.
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

// with returns c with another BTP operator.
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

// newOperator returns the BTP operator with the overrides of this stage, and reports whether there are any. Its namespace and URL are those
// in Kyma's list of components, otherwise the previous ones.
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
