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
			shortRequeue, longRequeue, "When a BtpOperator in the state Processing is looked at again."),
		duration("ReadyStateRequeueInterval", func(c *Config) *time.Duration { return &c.ReadyStateRequeueInterval },
			shortRequeue, longRequeue, "When a BtpOperator in the state Ready is looked at again, though no watch saw a change."),
		duration("ReadyTimeout", func(c *Config) *time.Duration { return &c.ReadyTimeout },
			shortTimeout, longTimeout, "How long the objects of the chart may take to become ready before the state is Error."),
		duration("ReadyCheckInterval", func(c *Config) *time.Duration { return &c.ReadyCheckInterval },
			shortCheck, longCheck, "How often their readiness is looked at meanwhile."),
		duration("HardDeleteTimeout", func(c *Config) *time.Duration { return &c.HardDeleteTimeout },
			shortTimeout, longTimeout, "How long a deprovisioning waits for service bindings and instances before it takes their finalizers off. It counts for deprovisionings that begin after the change."),
		duration("HardDeleteCheckInterval", func(c *Config) *time.Duration { return &c.HardDeleteCheckInterval },
			shortCheck, longCheck, "How often is looked whether any are left."),
		duration("DeleteRequestTimeout", func(c *Config) *time.Duration { return &c.DeleteRequestTimeout },
			shortTimeout, longTimeout, "How long one request that deletes service bindings or instances may take."),
		duration("CaCertificateExpiration", func(c *Config) *time.Duration { return &c.CaCertificateExpiration },
			shortLife, longLife, "How long a new CA of the webhooks is valid."),
		duration("WebhookCertificateExpiration", func(c *Config) *time.Duration { return &c.WebhookCertificateExpiration },
			shortLife, longLife, "How long a new serving certificate of the webhooks is valid, at most as long as its CA."),
		duration("ExpirationBoundary", func(c *Config) *time.Duration { return &c.ExpirationBoundary },
			shortMargin, longMargin, "How long before its end a certificate is renewed, at most half of how long it is valid."),
		boolean("BlockDeletion", func(c *Config) *bool { return &c.BlockDeletion },
			"Whether a BtpOperator without the label `force-delete` stays, in the state Warning, while service instances or bindings exist."),
		boolean("OperandFirst", func(c *Config) *bool { return &c.OperandFirst },
			"Whether the operand's Deployment and webhooks are removed before the hard delete. The finalizers of the operand then stay, and so does the remote side."),
		boolean("EnableLimitedCache", func(c *Config) *bool { return &c.EnableLimitedCache },
			"Whether the operand's cache is limited to the Secrets and ConfigMaps that it works with. A change restarts the operand."),
		text("ChartNamespace", func(c *Config) *string { return &c.ChartNamespace },
			namespaceProblem, namespaceAllowed, "The namespace of everything: the Secret, the ConfigMap, the operand."),
		text("SecretName", func(c *Config) *string { return &c.SecretName },
			nameProblem, nameAllowed, "The name of the Secret with the credentials."),
		text("ConfigName", func(c *Config) *string { return &c.ConfigName },
			nameProblem, nameAllowed, "The name of the ConfigMap with settings."),
		boolean("LeaderElect", func(c *Config) *bool { return &c.LeaderElect },
			"Whether one of several managers is elected and acts.").flagOnly(),
		text("MetricsBindAddress", func(c *Config) *string { return &c.MetricsBindAddress },
			addressProblem, addressAllowed, "Where metrics are served."),
		text("HealthProbeBindAddress", func(c *Config) *string { return &c.HealthProbeBindAddress },
			addressProblem, addressAllowed, "Where the probes /healthz and /readyz are answered."),
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
