package config

import (
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// Setting describes a setting. The table in docs/btp-manager.md is generated from it.
type Setting struct {
	// Key is the name in the ConfigMap, and Flag the name on the command line, without dashes.
	Key, Flag string
	// Type is duration, bool or string.
	Type string
	// Default is the value if neither a flag nor the ConfigMap sets one.
	Default string
	// Allowed describes the valid values.
	Allowed string
	// Meaning is a sentence for operators of the manager.
	Meaning string
	// FlagOnly settings cannot change at run time, and are rejected in the ConfigMap.
	FlagOnly bool
}

// entry is a Setting with access to its field.
type entry struct {
	Setting
	// field returns a *time.Duration, *bool or *string.
	field func(*Config) any
	// problem describes an invalid value in the field; empty if it is valid.
	problem func(*Config) string
}

// Settings lists all settings. Those that can change at run time are first.
func Settings() []Setting {
	entries := table()
	all := make([]Setting, len(entries))
	for i, e := range entries {
		all[i] = e.Setting
	}
	return all
}

// Shorter intervals would overload the API server, and longer ones are probably a wrong unit.
const (
	shortCheck, longCheck     = 100 * time.Millisecond, time.Hour
	shortRequeue, longRequeue = time.Second, day
	shortTimeout, longTimeout = 100 * time.Millisecond, 7 * day
	shortLife, longLife       = time.Hour, 30 * year
	shortMargin, longMargin   = time.Minute, year
)

func table() []entry {
	entries := []entry{
		duration("ProcessingStateRequeueInterval", func(c *Config) *time.Duration { return &c.ProcessingStateRequeueInterval },
			shortRequeue, longRequeue, "The interval of passes for a BtpOperator in the state Processing."),
		duration("ReadyStateRequeueInterval", func(c *Config) *time.Duration { return &c.ReadyStateRequeueInterval },
			shortRequeue, longRequeue, "The interval of passes for a BtpOperator in the state Ready, in addition to the watches."),
		duration("ReadyTimeout", func(c *Config) *time.Duration { return &c.ReadyTimeout },
			shortTimeout, longTimeout, "The time in which the objects of the chart must become ready. After that the state is Error."),
		duration("ReadyCheckInterval", func(c *Config) *time.Duration { return &c.ReadyCheckInterval },
			shortCheck, longCheck, "The interval of the readiness checks during that time."),
		duration("HardDeleteTimeout", func(c *Config) *time.Duration { return &c.HardDeleteTimeout },
			shortTimeout, longTimeout, "How long a deprovisioning waits for service bindings and instances before it removes their finalizers. A change applies to later deprovisionings."),
		duration("HardDeleteCheckInterval", func(c *Config) *time.Duration { return &c.HardDeleteCheckInterval },
			shortCheck, longCheck, "The interval of the checks for remaining service instances and bindings, and of a removal without progress."),
		duration("DeleteRequestTimeout", func(c *Config) *time.Duration { return &c.DeleteRequestTimeout },
			shortTimeout, longTimeout, "The timeout of a request that deletes service bindings or instances."),
		duration("CaCertificateExpiration", func(c *Config) *time.Duration { return &c.CaCertificateExpiration },
			shortLife, longLife, "The lifetime of a new CA of the webhooks."),
		duration("WebhookCertificateExpiration", func(c *Config) *time.Duration { return &c.WebhookCertificateExpiration },
			shortLife, longLife, "The lifetime of a new serving certificate of the webhooks, limited by that of its CA."),
		duration("ExpirationBoundary", func(c *Config) *time.Duration { return &c.ExpirationBoundary },
			shortMargin, longMargin, "The time before its expiry at which a certificate is renewed, at most half of its lifetime."),
		boolean("BlockDeletion", func(c *Config) *bool { return &c.BlockDeletion },
			"Whether service instances and bindings block the deletion of a BtpOperator without the label `force-delete`. Its state is then Warning."),
		boolean("OperandFirst", func(c *Config) *bool { return &c.OperandFirst },
			"Whether the operand's Deployment and webhooks are removed before the hard delete. The operand's finalizers and the remote side then stay."),
		boolean("EnableLimitedCache", func(c *Config) *bool { return &c.EnableLimitedCache },
			"Whether the operand's cache is limited to the Secrets and ConfigMaps that it uses. A change restarts the operand."),
		text("ChartNamespace", func(c *Config) *string { return &c.ChartNamespace },
			namespaceProblem, namespaceAllowed, "The namespace of all objects: the Secret, the ConfigMap, the operand."),
		text("SecretName", func(c *Config) *string { return &c.SecretName },
			nameProblem, nameAllowed, "The name of the Secret with the credentials."),
		text("ConfigName", func(c *Config) *string { return &c.ConfigName },
			nameProblem, nameAllowed, "The name of the ConfigMap with settings."),
		text("OperandPullSecrets", func(c *Config) *string { return &c.OperandPullSecrets },
			pullSecretsProblem, pullSecretsAllowed, "The Secrets for pulling the operand's image."),
		text("OperandEgressPorts", func(c *Config) *string { return &c.OperandEgressPorts },
			portsProblem, portsAllowed, "The ports that the operand's network policies let it call: those of Service Manager and of the API server."),
		boolean("LeaderElect", func(c *Config) *bool { return &c.LeaderElect },
			"Whether several managers elect a leader, which alone acts.").flagOnly(),
		text("MetricsBindAddress", func(c *Config) *string { return &c.MetricsBindAddress },
			addressProblem, addressAllowed, "The address of the metrics."),
		text("HealthProbeBindAddress", func(c *Config) *string { return &c.HealthProbeBindAddress },
			addressProblem, addressAllowed, "The address of the probes /healthz and /readyz."),
	}
	d := Default()
	for i := range entries {
		entries[i].Flag = kebab(entries[i].Key)
		entries[i].Default = entries[i].text(&d)
	}
	return entries
}

func duration(key string, field func(*Config) *time.Duration, shortest, longest time.Duration, meaning string) entry {
	allowed := "a duration from " + short(shortest) + " to " + short(longest)
	return entry{
		Setting: Setting{Key: key, Type: "duration", Allowed: allowed, Meaning: meaning},
		field:   func(c *Config) any { return field(c) },
		problem: func(c *Config) string {
			switch d := *field(c); {
			case d <= 0:
				return short(d) + " is not positive"
			case d < shortest:
				return short(d) + " is too short"
			case d > longest:
				return short(d) + " is too long"
			}
			return ""
		},
	}
}

func boolean(key string, field func(*Config) *bool, meaning string) entry {
	return entry{
		Setting: Setting{Key: key, Type: "bool", Allowed: "true or false", Meaning: meaning},
		field:   func(c *Config) any { return field(c) },
		problem: func(*Config) string { return "" },
	}
}

// text is a setting that applies at the start.
func text(key string, field func(*Config) *string, problem func(string) string, allowed, meaning string) entry {
	return entry{
		Setting: Setting{Key: key, Type: "string", Allowed: allowed, Meaning: meaning},
		field:   func(c *Config) any { return field(c) },
		problem: func(c *Config) string { return problem(*field(c)) },
	}.flagOnly()
}

func (e entry) flagOnly() entry {
	e.FlagOnly = true
	return e
}

// text returns the value in the format of flags and the ConfigMap.
func (e entry) text(c *Config) string {
	switch v := e.field(c).(type) {
	case *time.Duration:
		return short(*v)
	case *bool:
		return strconv.FormatBool(*v)
	case *string:
		return *v
	}
	return ""
}

// short formats a duration without zero parts: 20m instead of 20m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// kebab converts ReadyTimeout to ready-timeout.
func kebab(key string) string {
	var b strings.Builder
	for i, r := range key {
		if unicode.IsUpper(r) {
			if i > 0 {
				b.WriteByte('-')
			}
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}
