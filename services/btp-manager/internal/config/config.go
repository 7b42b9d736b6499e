// Package config defines the settings of the manager. A Config is an immutable snapshot. The flags define the first one, and each version
// of the ConfigMap sap-btp-manager overrides that one, so a key that is removed has its flag's value again
// (docs/contracts/btp-manager.md#timers).
package config

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config holds the settings. Its fields have the names of the ConfigMap's keys, which Settings describes. Copies are independent, and
// equal settings compare equal.
type Config struct {
	// ProcessingStateRequeueInterval is the interval of passes for a BtpOperator in the state Processing.
	ProcessingStateRequeueInterval time.Duration
	// ReadyStateRequeueInterval is the interval of passes for a BtpOperator in the state Ready, in addition to the watches.
	ReadyStateRequeueInterval time.Duration
	// ReadyTimeout is the time in which the objects of the chart must become ready.
	ReadyTimeout time.Duration
	// ReadyCheckInterval is the interval of the readiness checks during that time.
	ReadyCheckInterval time.Duration
	// HardDeleteTimeout is how long a deprovisioning waits for service bindings and instances before it removes their finalizers.
	HardDeleteTimeout time.Duration
	// HardDeleteCheckInterval is the interval of the checks for remaining ones.
	HardDeleteCheckInterval time.Duration
	// DeleteRequestTimeout is the timeout of a request that deletes service bindings or instances.
	DeleteRequestTimeout time.Duration
	// CaCertificateExpiration is the lifetime of a CA of the webhooks.
	CaCertificateExpiration time.Duration
	// WebhookCertificateExpiration is the lifetime of a serving certificate of the webhooks.
	WebhookCertificateExpiration time.Duration
	// ExpirationBoundary is the time before its expiry at which a certificate is renewed.
	ExpirationBoundary time.Duration
	// BlockDeletion prevents the deletion of a BtpOperator while service instances or bindings exist, unless it has the label force-delete.
	BlockDeletion bool
	// OperandFirst removes the operand's Deployment and webhooks before the hard delete.
	OperandFirst bool

	// EnableLimitedCache limits the operand's cache to the Secrets and ConfigMaps that it uses.
	EnableLimitedCache bool
	// ChartNamespace is the namespace of all objects.
	ChartNamespace string
	// SecretName is the name of the Secret with the credentials.
	SecretName string
	// ConfigName is the name of the ConfigMap with settings.
	ConfigName string
	// OperandPullSecrets are the names of the Secrets for pulling the operand's image, separated by commas. Empty means none.
	OperandPullSecrets string
	// OperandEgressPorts are the ports that the operand's network policies let it call, separated by commas.
	OperandEgressPorts string
	// LeaderElect enables the leader election among several managers.
	LeaderElect bool
	// MetricsBindAddress is the address of the metrics, HealthProbeBindAddress that of the probes. "0" disables them.
	MetricsBindAddress, HealthProbeBindAddress string
}

// Default returns the settings without flags.
func Default() Config {
	return Config{ //nolint:gosec // the name of a Secret is no secret
		ProcessingStateRequeueInterval: 5 * time.Minute,
		ReadyStateRequeueInterval:      time.Hour,
		ReadyTimeout:                   time.Minute,
		ReadyCheckInterval:             2 * time.Second,
		HardDeleteTimeout:              20 * time.Minute,
		HardDeleteCheckInterval:        10 * time.Second,
		DeleteRequestTimeout:           30 * time.Second,
		CaCertificateExpiration:        10 * year,
		WebhookCertificateExpiration:   year,
		ExpirationBoundary:             7 * day,
		EnableLimitedCache:             true,
		ChartNamespace:                 "kyma-system",
		SecretName:                     "sap-btp-manager",
		ConfigName:                     "sap-btp-manager",
		OperandEgressPorts:             "443,6443",
		LeaderElect:                    true,
		MetricsBindAddress:             ":8080",
		HealthProbeBindAddress:         ":8081",
	}
}

// PullSecrets returns the names in OperandPullSecrets.
func (c Config) PullSecrets() []string { return split(c.OperandPullSecrets) }

// EgressPorts returns the numbers in OperandEgressPorts, which must be valid.
func (c Config) EgressPorts() []int {
	var ports []int
	for _, s := range split(c.OperandEgressPorts) {
		if port, err := strconv.Atoi(s); err == nil {
			ports = append(ports, port)
		}
	}
	return ports
}

// split splits a list. An empty one has no elements.
func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// Diff returns the sorted names of the settings that differ.
func Diff(old, changed Config) []string {
	var keys []string
	for _, s := range table() {
		if s.text(&old) != s.text(&changed) {
			keys = append(keys, s.Key)
		}
	}
	slices.Sort(keys)
	return keys
}
