package landscape

import (
	"fmt"
	"maps"
	"strings"

	"github.com/kyma-project/keb/landscape/internal/kubernetes"
)

// plans are the plans with overrides (docs/contracts/plans.md#plans).
var plans = []string{"azure", "azure_lite", "aws", "gcp", "openstack", "trial", "free", "own_cluster", "preview"}

const (
	secretResource    = "/v1/secrets"
	configMapResource = "/v1/configmaps"
)

// seed creates the data that the real systems have before KEB is used. It keeps existing data.
func seed(cfg Config, control, garden *kubernetes.System) error {
	if err := seedBindings(cfg, garden); err != nil {
		return fmt.Errorf("seed gardener: %w", err)
	}
	if err := seedControlPlane(cfg, control); err != nil {
		return fmt.Errorf("seed control plane: %w", err)
	}
	return nil
}

// seedBindings creates the account pool (docs/contracts/gardener.md#account-pool): unclaimed bindings for each hyperscaler, a tenth as many
// for EU access, and three shared ones for trials. The secrets that they refer to contain hyperscaler accounts; the simulators do not
// need them.
func seedBindings(cfg Config, garden *kubernetes.System) error {
	add := func(name string, labels map[string]any) error {
		return garden.Ensure("", bindingResource, map[string]any{
			"metadata":  map[string]any{"name": name, "namespace": gardenNamespace, "labels": labels},
			"secretRef": map[string]any{"name": name, "namespace": gardenNamespace},
			"provider":  map[string]any{"type": labels["hyperscalerType"]},
		})
	}
	for _, hyperscaler := range []string{"azure", "aws", "gcp", "openstack"} {
		for _, pool := range []struct {
			name   string
			count  int
			labels map[string]any
		}{
			{"pool", cfg.Bindings, nil},
			{"eu", (cfg.Bindings + 9) / 10, map[string]any{"euAccess": "true"}},
			{"shared", 3, map[string]any{"shared": "true"}},
		} {
			for i := range pool.count {
				labels := map[string]any{"hyperscalerType": hyperscaler}
				maps.Copy(labels, pool.labels)
				if err := add(fmt.Sprintf("sb-%s-%s-%03d", hyperscaler, pool.name, i+1), labels); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// runtimeVersion returns the runtime version of a plan: the Kyma resource, and the additional components
// (docs/contracts/kyma-configuration.md#runtime-versions).
func runtimeVersion(channel string) string {
	return `kyma-template: |-
  apiVersion: operator.kyma-project.io/v1beta2
  kind: Kyma
  metadata:
    name: tbd
    namespace: kcp-system
  spec:
    channel: ` + channel + `
    modules:
    - name: btp-operator
      customResourcePolicy: CreateAndDelete
additional-components:
- name: btp-operator
  namespace: kyma-system
  source:
    url: https://storage.googleapis.com/kyma-mps-dev-artifacts/btp-operator-0.3.0.tar.gz
`
}

// seedControlPlane creates the overrides (docs/contracts/kyma-configuration.md#overrides), the Kyma template and the version mapping.
func seedControlPlane(cfg Config, control *kubernetes.System) error {
	versioned := func(component string) map[string]any {
		labels := map[string]any{"overrides-version-" + strings.ToLower(cfg.KymaVersion): "true", "overrides-version-" + strings.ToLower(cfg.NextKymaVersion): "true"}
		for _, plan := range plans {
			labels["overrides-plan-"+plan] = "true"
		}
		if component != "" {
			labels["component"] = component
		}
		return labels
	}
	type item struct {
		resource, name string
		labels, data   map[string]any
	}
	for _, i := range []item{
		{configMapResource, "overrides-global", versioned(""), map[string]any{"global.disableLegacyConnectivity": "true"}},
		{configMapResource, "overrides-istio", versioned("istio"), map[string]any{"global.tracing.enabled": "true", "helmValues.pilot.resources.requests.cpu": "100m"}},
		{configMapResource, "overrides-monitoring", versioned("monitoring"), map[string]any{"prometheus.retention": "1d"}},
		{secretResource, "overrides-secret-global", map[string]any{"runtime-override": "true"}, map[string]any{"global.registry.token": "simulated-registry-token"}},
		{
			secretResource, "overrides-secret-serverless",
			map[string]any{"runtime-override": "true", "component": "serverless"},
			map[string]any{"dockerRegistry.password": "simulated-docker-password"},
		},
		// Those of Kyma 1.
		{configMapResource, "overrides-kyma-1", map[string]any{"provisioning-runtime-override": "true"}, map[string]any{"global.disableLegacyConnectivity": "true"}},
		{
			configMapResource, "overrides-kyma-1-monitoring",
			map[string]any{"provisioning-runtime-override": "true", "component": "monitoring", "default-for-lite": "true"},
			map[string]any{"prometheus.retention": "1d"},
		},
		{
			configMapResource, "keb-runtime-configuration",
			map[string]any{"keb-config": "true", "runtime-version-" + strings.ToLower(cfg.KymaVersion): "true", "runtime-version-" + strings.ToLower(cfg.NextKymaVersion): "true"},
			map[string]any{"default": runtimeVersion("regular"), "preview": runtimeVersion("fast")},
		},
		{configMapResource, "kyma-versions", nil, map[string]any{"SA_kyma-next": cfg.NextKymaVersion}},
	} {
		meta := map[string]any{"name": i.name, "namespace": kcpNamespace}
		if i.labels != nil {
			meta["labels"] = i.labels
		}
		body := map[string]any{"metadata": meta}
		if i.resource == secretResource {
			body["stringData"] = i.data
		} else {
			body["data"] = i.data
		}
		if err := control.Ensure("", i.resource, body); err != nil {
			return err
		}
	}
	return nil
}
