// Package config holds the settings of the manager. A Config is a snapshot that nobody changes: flags make the first one, and the
// ConfigMap sap-btp-manager is laid over that one each time it changes, so that what is taken out of it has its flag's value
// again (docs/contracts/btp-manager.md#timers).
package config

import (
	"slices"
	"time"
)

// Config is the settings. Its fields have the names of the ConfigMap's keys; Settings says what each means and allows. Copies are
// independent, and two with equal settings are equal.
type Config struct {
	// ProcessingStateRequeueInterval is when a BtpOperator in the state Processing is looked at again.
	ProcessingStateRequeueInterval time.Duration
	// ReadyStateRequeueInterval is when one in the state Ready is looked at again, whatever the watches see.
	ReadyStateRequeueInterval time.Duration
	// ReadyTimeout is how long the objects of the chart may take to become ready.
	ReadyTimeout time.Duration
	// ReadyCheckInterval is how often their readiness is looked at meanwhile.
	ReadyCheckInterval time.Duration
	// HardDeleteTimeout is how long a deprovisioning waits for service bindings and instances before it takes their finalizers off.
	HardDeleteTimeout time.Duration
	// HardDeleteCheckInterval is how often is looked whether any are left.
	HardDeleteCheckInterval time.Duration
	// DeleteRequestTimeout bounds one request that deletes service bindings or instances.
	DeleteRequestTimeout time.Duration
	// CaCertificateExpiration is how long a CA of the webhooks is valid.
	CaCertificateExpiration time.Duration
	// WebhookCertificateExpiration is how long a serving certificate of the webhooks is valid.
	WebhookCertificateExpiration time.Duration
	// ExpirationBoundary is how long before its end a certificate is renewed.
	ExpirationBoundary time.Duration
	// BlockDeletion keeps a BtpOperator while service instances or bindings exist and it has no label force-delete.
	BlockDeletion bool
	// OperandFirst removes the operand's Deployment and webhooks before the hard delete.
	OperandFirst bool

	// EnableLimitedCache limits the operand's cache of Secrets and ConfigMaps to those that it works with.
	EnableLimitedCache bool
	// ChartNamespace is the namespace of everything.
	ChartNamespace string
	// SecretName is the name of the Secret with the credentials.
	SecretName string
	// ConfigName is the name of the ConfigMap with settings.
	ConfigName string
	// LeaderElect lets one of several managers act.
	LeaderElect bool
	// MetricsBindAddress is where metrics are served, HealthProbeBindAddress where the probes are answered. "0": nowhere.
	MetricsBindAddress, HealthProbeBindAddress string
}

// Default is the settings without any flag.
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
		LeaderElect:                    true,
		MetricsBindAddress:             ":8080",
		HealthProbeBindAddress:         ":8081",
	}
}

// Diff names the settings that differ, sorted.
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
