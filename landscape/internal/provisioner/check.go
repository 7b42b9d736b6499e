package provisioner

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/kyma-project/keb/landscape/internal/contract"
	"github.com/kyma-project/keb/landscape/internal/graphql"
)

// Codes, reasons and components of errors (docs/contracts/runtime-provisioner.md#errors).
const (
	codeNotFound = 2

	reasonInternal   = "err_provisioner_internal"
	reasonNotFound   = "err_db_not_found"
	reasonExists     = "AlreadyExists"
	componentSelf    = "provisioner"
	componentDB      = "db - provisioner"
	componentGarden  = "gardener"
	agentOfKyma      = "compass-runtime-agent"
	licenceTest      = "TestDevelopmentAndDemo"
	labelSubaccount  = "global_subaccount_id"
	labelGrafana     = "operator_grafanaUrl"
	labelLogs        = "operator_lmsUrl"
	longestName      = 36
	providerAzure    = "azure"
	providerAWS      = "aws"
	providerGCP      = "gcp"
	providerOpenSt   = "openstack"
	specificOfPrefix = "providerSpecificConfig."
)

func failure(code int, reason, component, format string, args ...any) error {
	return &graphql.Error{Message: fmt.Sprintf(format, args...), Extensions: map[string]any{
		"error_code": code, "error_reason": reason, "error_component": component,
	}}
}

func badRequest(format string, args ...any) error {
	return failure(http.StatusBadRequest, reasonInternal, componentSelf, format, args...)
}

func notFound(what, id string) error {
	return failure(codeNotFound, reasonNotFound, componentDB, "%s %s not found", what, id)
}

// refuse rejects a request that no correct client sends, and that the real system rejects.
func refuse(r *http.Request, format string, args ...any) error {
	contract.Violation(r, format, args...)
	return badRequest(format, args...)
}

// headers are the headers of a client of the Runtime Provisioner, and those that HTTP and tracing add.
var headers = []string{
	"Accept", "Accept-Encoding", "Baggage", "Connection", "Content-Length", "Content-Type", "Sub-Account", "Tenant", "Traceparent",
	"Tracestate", "User-Agent",
}

// tenantOf checks the headers of a request. Only provisionRuntime has a sub-account.
func tenantOf(r *http.Request, creates bool) (string, error) {
	for name := range r.Header {
		if !slices.Contains(headers, name) && !strings.HasPrefix(name, "X-") {
			return "", refuse(r, "header %s: unknown", name)
		}
	}
	switch sub := r.Header.Get("Sub-Account"); {
	case creates && sub == "":
		contract.Violation(r, "header sub-account: required")
	case !creates && sub != "":
		contract.Violation(r, "header sub-account: only for provisionRuntime")
	}
	tenant := r.Header.Get("Tenant")
	if tenant == "" {
		return "", refuse(r, "header tenant: required")
	}
	return tenant, nil
}

// order is the argument of provisionRuntime.
type order struct {
	RuntimeInput struct {
		Name        string         `json:"name"`
		Description *string        `json:"description"`
		Labels      map[string]any `json:"labels"`
	} `json:"runtimeInput"`
	ClusterConfig struct {
		GardenerConfig config   `json:"gardenerConfig"`
		Administrators []string `json:"administrators"`
	} `json:"clusterConfig"`
	KymaConfig map[string]any `json:"kymaConfig"`
}

// config is a gardenerConfig.
type config map[string]any

func (c config) has(name string) bool { return c[name] != nil }

func (c config) text(name string) string {
	v, _ := c[name].(string)
	return v
}

func (c config) object(name string) config {
	v, _ := c[name].(map[string]any)
	return v
}

// check rejects what the real server rejects, and records violations of the contract. An order with Kyma must follow the API of 2020, any
// other one that of 2023.
func (o order) check(r *http.Request) error {
	g := o.ClusterConfig.GardenerConfig
	if err := checkKyma(r, o.KymaConfig); err != nil {
		return err
	}
	if o.KymaConfig == nil && !g.has("name") {
		return refuse(r, "name: required")
	}
	if o.KymaConfig != nil {
		if err := o.checkMembers(r); err != nil {
			return err
		}
	}
	if g.has("machineImageVersion") && g.text("machineImage") == "" {
		return refuse(r, "machineImageVersion: needs machineImage")
	}
	if err := checkSpecific(r, g); err != nil {
		return err
	}
	if g.text("provider") == providerOpenSt && (g.has("diskType") || g.has("volumeSizeGB")) {
		return refuse(r, "diskType, volumeSizeGB: must be absent for openstack")
	}
	for _, problem := range o.problems() {
		contract.Violation(r, "%s", problem)
	}
	return nil
}

// checkMembers rejects members that the schema of 2020 does not have, and missing members that it requires
// (docs/contracts/runtime-provisioner.md#kyma-1).
func (o order) checkMembers(r *http.Request) error {
	g := o.ClusterConfig.GardenerConfig
	for _, name := range []string{
		"name", "dnsConfig", "oidcConfig", "euAccess", "exposureClassName", "shootNetworkingFilterDisabled", "controlPlaneFailureTolerance",
	} {
		if g.has(name) {
			return refuse(r, "%s: unknown to the API of 2020", name)
		}
	}
	if o.ClusterConfig.Administrators != nil {
		return refuse(r, "administrators: unknown to the API of 2020")
	}
	for _, name := range []string{"diskType", "volumeSizeGB"} {
		if !g.has(name) {
			return refuse(r, "%s: required", name)
		}
	}
	azure := g.object("providerSpecificConfig").object("azureConfig")
	for _, name := range []string{"azureZones", "enableNatGateway", "idleConnectionTimeoutMinutes"} {
		if azure.has(name) {
			return refuse(r, "azureConfig.%s: unknown to the API of 2020", name)
		}
	}
	parts, _ := o.KymaConfig["components"].([]any)
	for _, part := range append(parts, o.KymaConfig) {
		c, _ := part.(map[string]any)
		for _, name := range []string{"profile", "conflictStrategy"} {
			if config(c).has(name) {
				return refuse(r, "kymaConfig: %s: unknown to the API of 2020", name)
			}
		}
	}
	return checkSelection(r)
}

// checkSelection rejects a query of a field that the operations of 2020 do not have.
func checkSelection(r *http.Request) error {
	if graphql.Selects(r, "lastError") {
		return refuse(r, "Cannot query field \"lastError\" on type \"OperationStatus\"")
	}
	return nil
}

// checkKyma validates the Kyma configuration of provisionRuntime and upgradeRuntime.
func checkKyma(r *http.Request, kyma map[string]any) error {
	if kyma == nil {
		return nil
	}
	components, _ := kyma["components"].([]any)
	if len(components) == 0 {
		return refuse(r, "kymaConfig.components: must not be empty")
	}
	if !slices.ContainsFunc(components, func(c any) bool {
		component, _ := c.(map[string]any)
		return component["component"] == agentOfKyma
	}) {
		return refuse(r, "kymaConfig.components: must contain %s", agentOfKyma)
	}
	return nil
}

var specificOf = map[string]string{
	providerAzure: "azureConfig", providerAWS: "awsConfig", providerGCP: "gcpConfig", providerOpenSt: "openStackConfig",
}

func checkSpecific(r *http.Request, g config) error {
	given := maps.Clone(g.object("providerSpecificConfig"))
	maps.DeleteFunc(given, func(_ string, v any) bool { return v == nil })
	want, known := specificOf[g.text("provider")]
	if !known {
		return refuse(r, "provider: must be azure, aws, gcp or openstack")
	}
	if len(given) != 1 || given[want] == nil {
		return refuse(r, "providerSpecificConfig: must have exactly one member, %s", want)
	}
	return nil
}

var (
	runtimeName = regexp.MustCompile(`^[a-z0-9.-]+-[a-z0-9]{5}$`)
	cidrs       = regexp.MustCompile(`^10\.250\.0\.0/(16|19)$`)
)

// problems returns the violations of the contract that the real server accepts.
func (o order) problems() (found []string) {
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			found = append(found, fmt.Sprintf(format, args...))
		}
	}
	g, labels := o.ClusterConfig.GardenerConfig, o.RuntimeInput.Labels
	add(o.RuntimeInput.Description != nil, "runtimeInput.description: never sent")
	add(g.has("seed"), "seed: never sent")
	add(len(o.RuntimeInput.Name) > longestName || !runtimeName.MatchString(o.RuntimeInput.Name), "runtimeInput.name: not name and five characters")
	want := map[string]bool{instanceLabel: true, labelSubaccount: true, labelGrafana: o.KymaConfig == nil}
	for name, required := range want {
		v, _ := labels[name].(string)
		add(required && v == "", "runtimeInput.labels.%s: required", name)
	}
	// A runtime with Kyma has the address of its logs, unless it has no tenant in LMS.
	if logs, ok := labels[labelLogs].(string); ok && o.KymaConfig != nil {
		want[labelLogs] = true
		add(!strings.HasPrefix(logs, "https://kibana."), "runtimeInput.labels.%s: must be a host kibana", labelLogs)
	}
	for name := range labels {
		add(!want[name], "runtimeInput.labels.%s: unknown", name)
	}
	if o.KymaConfig == nil {
		found = append(found, o.problemsOf2023()...)
	}
	for _, name := range []string{"enableKubernetesVersionAutoUpdate", "enableMachineImageVersionAutoUpdate"} {
		add(!g.has(name), "%s: required", name)
	}
	for _, name := range []string{"kubernetesVersion", "targetSecret", "region", "machineType"} {
		add(g.text(name) == "", "%s: must not be empty", name)
	}
	for _, name := range []string{"diskType", "purpose", "licenceType", "machineImage", "machineImageVersion", "exposureClassName", "controlPlaneFailureTolerance"} {
		add(g.has(name) && g.text(name) == "", "%s: omitted when empty", name)
	}
	provider := g.text("provider")
	add(!g.has("purpose"), "purpose: required")
	add(g.has("licenceType") && g.text("licenceType") != licenceTest, "licenceType: must be %s or absent", licenceTest)
	add(provider != providerOpenSt && (!g.has("diskType") || !g.has("volumeSizeGB")), "diskType, volumeSizeGB: required for %s", provider)
	add(!cidrs.MatchString(g.text("workerCidr")), "workerCidr: must be 10.250.0.0/16 or /19")
	if o.KymaConfig != nil {
		add(g.text("workerCidr") != "10.250.0.0/19", "workerCidr: must be 10.250.0.0/19")
		return append(found, problemsOfNetwork(g, "zones")...)
	}
	return append(found, problemsOfNetwork(g, "azureZones")...)
}

// problemsOf2023 returns the problems of members that an order with Kyma does not have.
func (o order) problemsOf2023() (found []string) {
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			found = append(found, fmt.Sprintf(format, args...))
		}
	}
	g := o.ClusterConfig.GardenerConfig
	add(o.ClusterConfig.Administrators == nil, "administrators: required")
	for _, name := range []string{"dnsConfig", "oidcConfig", "shootNetworkingFilterDisabled", "euAccess"} {
		add(!g.has(name), "%s: required", name)
	}
	add(g.has("name") && g.text("name") == "", "name: must not be empty")
	domain := g.object("dnsConfig").text("domain")
	add(o.RuntimeInput.Labels[labelGrafana] != "https://grafana."+domain,
		"runtimeInput.labels.%s: must be the host grafana of dnsConfig.domain", labelGrafana)
	if providers, ok := g.object("dnsConfig")["providers"].([]any); ok {
		add(len(providers) == 0, "dnsConfig.providers: omitted when there are none")
	}
	add((g.text("provider") == providerOpenSt) != g.has("exposureClassName"), "exposureClassName: for openstack only")
	add(g.has("controlPlaneFailureTolerance") && !slices.Contains([]string{"node", "zone"}, g.text("controlPlaneFailureTolerance")),
		"controlPlaneFailureTolerance: must be node or zone")
	return found
}

// problemsOfNetwork returns the problems of providerSpecificConfig, which has one member.
func problemsOfNetwork(g config, azureZones string) (found []string) {
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			found = append(found, specificOfPrefix+fmt.Sprintf(format, args...))
		}
	}
	provider := g.text("provider")
	specific := g.object("providerSpecificConfig").object(specificOf[provider])
	switch provider {
	case providerAzure:
		zones, _ := specific[azureZones].([]any)
		add(len(zones) == 0, "azureConfig.%s: required", azureZones)
		add(azureZones == "azureZones" && !specific.has("enableNatGateway"), "azureConfig.enableNatGateway: required")
		add(specific.text("vnetCidr") != g.text("workerCidr"), "azureConfig.vnetCidr: must be workerCidr")
	case providerAWS:
		zones, _ := specific["awsZones"].([]any)
		add(len(zones) == 0, "awsConfig.awsZones: required")
		add(specific.text("vpcCidr") != "10.250.0.0/16", "awsConfig.vpcCidr: must be 10.250.0.0/16")
	case providerGCP, providerOpenSt:
		zones, _ := specific["zones"].([]any)
		add(len(zones) == 0, "%s.zones: required", specificOf[provider])
		for _, zone := range zones {
			name, _ := zone.(string)
			add(!strings.HasPrefix(name, g.text("region")), "%s.zones: not of the region", specificOf[provider])
		}
	}
	return found
}

// upgrade is the config argument of upgradeShoot.
type upgrade struct {
	GardenerConfig config   `json:"gardenerConfig"`
	Administrators []string `json:"administrators"`
}

// check rejects what the real server rejects, and records violations of the contract.
func (u upgrade) check(r *http.Request, runtime Runtime) error {
	g := u.GardenerConfig
	for _, name := range []string{"machineType", "kubernetesVersion", "diskType", "purpose"} {
		if g.has(name) && g.text(name) == "" {
			return refuse(r, "%s: must not be empty", name)
		}
	}
	for _, name := range []string{"providerSpecificConfig", "diskType", "volumeSizeGB", "purpose", "exposureClassName"} {
		if g.has(name) {
			contract.Violation(r, "%s: never sent by upgradeShoot", name)
		}
	}
	if runtime.Kyma == nil {
		for _, name := range []string{"oidcConfig", "shootNetworkingFilterDisabled"} {
			if !g.has(name) {
				contract.Violation(r, "%s: required", name)
			}
		}
		if len(u.Administrators) == 0 && len(runtime.Admins) > 0 {
			contract.Violation(r, "administrators: required, their absence removes all that the cluster has")
		}
	}
	return u.checkNetwork(runtime)
}

// checkNetwork rejects a network that differs from that of the cluster.
func (u upgrade) checkNetwork(runtime Runtime) error {
	specific := u.GardenerConfig.object("providerSpecificConfig")
	for provider, fixed := range map[string][]string{
		"azureConfig": {"vnetCidr", "zones", "azureZones"}, "awsConfig": {"vpcCidr", "awsZones"},
	} {
		now, before := specific.object(provider), config(runtime.Config).object("providerSpecificConfig").object(provider)
		for _, name := range fixed {
			if now.has(name) && fmt.Sprint(now[name]) != fmt.Sprint(before[name]) {
				return badRequest("%s.%s cannot be changed", provider, name)
			}
		}
	}
	return nil
}
