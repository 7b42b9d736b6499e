package landscape

import (
	_ "embed" // for the schema of Kyma
	"fmt"
	"hash/fnv"
	"net/http"
	"time"

	"github.com/kyma-project/keb/landscape/internal/director"
	"github.com/kyma-project/keb/landscape/internal/journal"
	"github.com/kyma-project/keb/landscape/internal/kubernetes"
	"github.com/kyma-project/keb/landscape/internal/provisioner"
	"github.com/kyma-project/keb/landscape/internal/reconciler"
)

// ReconcilerUserAgent is the user agent of the simulated Reconciler, which connects to the runtimes.
const ReconcilerUserAgent = reconciler.UserAgent

// Names of the Kubernetes systems.
const (
	controlPlane = "control-plane"
	gardener     = "gardener"
	runtimes     = "runtimes"
)

const (
	gardenNamespace = "garden-kyma"
	kcpNamespace    = "kcp-system"
	bindingResource = "core.gardener.cloud/v1beta1/secretbindings"
	shootResource   = "core.gardener.cloud/v1beta1/shoots"
)

// kymaSchema is the definition of Kyma v1beta2 (docs/contracts/lifecycle-manager.md).
//
//go:embed kyma.schema.json
var kymaSchema []byte

// kubernetesConfigs returns the three Kubernetes systems: their paths, namespaces and resources.
func kubernetesConfigs(cfg Config) []kubernetes.Config {
	core := []kubernetes.Resource{
		{Version: "v1", Plural: "namespaces", Kind: "Namespace"},
		{Version: "v1", Plural: "secrets", Kind: "Secret", Namespaced: true},
		{Version: "v1", Plural: "configmaps", Kind: "ConfigMap", Namespaced: true},
	}
	with := func(more ...kubernetes.Resource) []kubernetes.Resource {
		return append(append([]kubernetes.Resource{}, core...), more...)
	}
	return []kubernetes.Config{
		{
			Name: controlPlane, Prefix: "/k8s/control-plane", Token: cfg.KubernetesToken,
			Namespaces: []string{"default", "kube-system", kcpNamespace, "kyma-system"},
			Resources: with(kubernetes.Resource{
				Group: "operator.kyma-project.io", Version: "v1beta2", Plural: "kymas", Kind: "Kyma", Namespaced: true,
				ReadyWith: &kubernetes.Need{Resource: secretResource, Label: "operator.kyma-project.io/kyma-name", Key: "config"},
				Finalizer: "operator.kyma-project.io/Kyma",
				Custom:    true, Schema: kubernetes.MustSchema(kymaSchema),
				ReadyAfter: max(cfg.ReconcileTime, time.Nanosecond), GoneAfter: cfg.ReconcileTime / 2,
			}),
		},
		{
			Name: gardener, Prefix: "/k8s/gardener", Token: cfg.KubernetesToken,
			Namespaces: []string{"default", gardenNamespace},
			Resources: with(
				kubernetes.Resource{
					Group: "core.gardener.cloud", Version: "v1beta1", Plural: "secretbindings", Kind: "SecretBinding", Namespaced: true,
					// The subscription cleanup job (docs/contracts/gardener.md#release).
					Cleanup: &kubernetes.Cleanup{
						Mark: "dirty", Also: []string{"tenantName"}, After: cfg.CleanTime,
						Referrer: shootResource, Field: "secretBindingName",
					},
				},
				kubernetes.Resource{Group: "core.gardener.cloud", Version: "v1beta1", Plural: "shoots", Kind: "Shoot", Namespaced: true, ConfirmDelete: true},
			),
		},
		{
			Name: runtimes, Prefix: "/k8s/runtimes", PerRuntime: true,
			Namespaces: []string{"default", "kube-system"},
			Resources: with(
				kubernetes.Resource{Group: "services.cloud.sap.com", Version: "v1", Plural: "serviceinstances", Kind: "ServiceInstance", Namespaced: true, Custom: true},
				kubernetes.Resource{Group: "services.cloud.sap.com", Version: "v1", Plural: "servicebindings", Kind: "ServiceBinding", Namespaced: true, Custom: true},
				kubernetes.Resource{Version: "v1", Plural: "serviceaccounts", Kind: "ServiceAccount", Namespaced: true, Tokens: true},
				kubernetes.Resource{Group: "rbac.authorization.k8s.io", Version: "v1", Plural: "clusterroles", Kind: "ClusterRole"},
				kubernetes.Resource{Group: "rbac.authorization.k8s.io", Version: "v1", Plural: "clusterrolebindings", Kind: "ClusterRoleBinding"},
			),
		},
	}
}

// registry gives the Provisioner access to the Director.
type registry struct{ *director.System }

func (r registry) Register(id, tenant, name, description string, labels map[string]any) error {
	return r.System.Register(director.Runtime{ID: id, Tenant: tenant, Name: name, Description: description, Labels: labels})
}

// shoots gives the Provisioner access to Gardener.
type shoots struct{ *kubernetes.System }

func (s shoots) AddShoot(shoot provisioner.Shoot) error {
	annotations := map[string]any{
		"kcp.provisioner.kyma-project.io/runtime-id":   shoot.RuntimeID,
		"kcp.provisioner.kyma-project.io/operation-id": shoot.OperationID,
	}
	if shoot.LicenceType != "" {
		annotations["kcp.provisioner.kyma-project.io/licence-type"] = shoot.LicenceType
	}
	if shoot.EUAccess {
		annotations["support.gardener.cloud/eu-access-for-cluster-nodes"] = "true"
	}
	return s.Ensure("", shootResource, map[string]any{
		"metadata": map[string]any{
			"name": shoot.Name, "namespace": gardenNamespace, "annotations": annotations,
			"labels": map[string]any{"account": shoot.Tenant, "subaccount": shoot.SubAccount},
		},
		"spec": map[string]any{
			"secretBindingName": shoot.SecretBinding, "region": shoot.Region, "purpose": shoot.Purpose,
			"seedName":    shoot.Provider + "-eu1",
			"provider":    map[string]any{"type": shoot.Provider},
			"kubernetes":  map[string]any{"version": shoot.KubernetesVersion},
			"dns":         map[string]any{"domain": shoot.Domain},
			"extensions":  extensions(shoot),
			"maintenance": map[string]any{"timeWindow": timeWindow(shoot.Name)},
		},
	})
}

// extensions are what the Runtime Provisioner adds to every Shoot (docs/contracts/runtime-provisioner.md#what-the-server-does).
func extensions(shoot provisioner.Shoot) []any {
	return []any{
		map[string]any{"type": "shoot-dns-service"},
		map[string]any{"type": "shoot-cert-service"},
		map[string]any{"type": "shoot-networking-filter", "disabled": !shoot.NetworkingFilterEnabled},
	}
}

func (s shoots) UpdateShoot(shoot provisioner.Shoot) error {
	return s.Merge("", shootResource, gardenNamespace, shoot.Name, map[string]any{"spec": map[string]any{
		"kubernetes": map[string]any{"version": shoot.KubernetesVersion}, "extensions": extensions(shoot),
	}})
}

// clusters gives the Provisioner access to the Kubernetes API of runtimes.
type clusters struct{ *kubernetes.System }

const bindingOfRoles = "rbac.authorization.k8s.io/v1/clusterrolebindings"

// SetAdministrators writes the ClusterRoleBindings of operators and administrators
// (docs/contracts/runtime-provisioner.md#what-the-server-does).
func (s clusters) SetAdministrators(id string, had, have []string) error {
	group := func(name string) map[string]any {
		return map[string]any{"kind": "Group", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
	}
	type binding struct {
		name, role string
		subject    map[string]any
	}
	bindings := []binding{
		{"l2-operator", "l2-operator", group("runtimeOperator")}, {"l3-operator-admin", "cluster-admin", group("runtimeAdmin")},
	}
	for i, user := range have {
		bindings = append(bindings, binding{fmt.Sprintf("administrator%d", i), "cluster-admin", map[string]any{
			"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io",
		}})
	}
	for _, b := range bindings {
		object := map[string]any{
			"metadata": map[string]any{"name": b.name, "labels": map[string]any{
				"reconciler.kyma-project.io/managed-by": "reconciler", "app": "kyma",
			}},
			"roleRef":  map[string]any{"kind": "ClusterRole", "name": b.role, "apiGroup": "rbac.authorization.k8s.io"},
			"subjects": []any{b.subject},
		}
		if err := s.Ensure(id, bindingOfRoles, object); err != nil {
			return err
		}
		if err := s.Merge(id, bindingOfRoles, "", b.name, map[string]any{"subjects": []any{b.subject}}); err != nil {
			return err
		}
	}
	for i := len(have); i < len(had); i++ {
		if err := s.Remove(id, bindingOfRoles, "", fmt.Sprintf("administrator%d", i)); err != nil {
			return err
		}
	}
	return nil
}

// timeWindow returns a maintenance window of four hours that begins at a full hour from 20:00 to 03:00. The hour depends on the
// name (docs/contracts/gardener.md#shoots).
func timeWindow(shootName string) map[string]any {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(shootName))
	begin := (20 + hash.Sum32()%8) % 24
	return map[string]any{"begin": fmt.Sprintf("%02d0000+0000", begin), "end": fmt.Sprintf("%02d0000+0000", (begin+4)%24)}
}

func (s shoots) RemoveShoot(name string) error {
	return s.Remove("", shootResource, gardenNamespace, name)
}

// settled updates the Provisioner before another system answers a request about its clusters.
func settled(p *provisioner.System, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := p.Settle(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// settledSystem does the same for the admin API.
type settledSystem struct {
	system
	provisioner *provisioner.System
}

func (s settledSystem) Objects() ([]journal.Object, error) {
	if err := s.provisioner.Settle(); err != nil {
		return nil, err
	}
	return s.system.Objects()
}
