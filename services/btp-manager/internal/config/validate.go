package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// InvalidError is an invalid setting.
type InvalidError struct {
	// Key is the name of the setting, or an unknown key of the ConfigMap.
	Key string
	// Problem describes the invalid value.
	Problem string
	// Allowed describes the valid values.
	Allowed string
}

// Error returns the key, the problem, and the valid values.
func (e *InvalidError) Error() string { return e.Key + ": " + e.Problem + ": want " + e.Allowed }

const (
	namespaceAllowed   = "a DNS label: at most 63 lower-case letters, digits or hyphens, no hyphen at its ends"
	nameAllowed        = "a DNS name: at most 253 lower-case letters, digits, hyphens or dots, a letter or digit at its ends"
	pullSecretsAllowed = "different names of Secrets, separated by commas without spaces, or nothing"
	portsAllowed       = "different ports from 1 to 65535, separated by commas without spaces"
	addressAllowed     = "`host:port`, `:port`, or `0` for nowhere"
)

// Validate returns an InvalidError for each invalid setting, joined.
func (c Config) Validate() error {
	var all []error
	for _, s := range table() {
		if problem := s.problem(&c); problem != "" {
			all = append(all, &InvalidError{s.Key, problem, s.Allowed})
		}
	}
	if len(all) > 0 {
		// Relations between settings are checked only if each setting is valid.
		return errors.Join(all...)
	}
	return c.consistent()
}

// consistent checks the relations between settings.
func (c Config) consistent() error {
	var all []error
	atMost := func(key string, value time.Duration, than string, limit time.Duration) {
		if value > limit {
			all = append(all, &InvalidError{key, short(value) + " is too long", fmt.Sprintf("at most %s, which is %s", short(limit), than)})
		}
	}
	atMost("ReadyCheckInterval", c.ReadyCheckInterval, "ReadyTimeout", c.ReadyTimeout)
	atMost("HardDeleteCheckInterval", c.HardDeleteCheckInterval, "HardDeleteTimeout", c.HardDeleteTimeout)
	atMost("WebhookCertificateExpiration", c.WebhookCertificateExpiration, "CaCertificateExpiration", c.CaCertificateExpiration)
	// Without this limit, a certificate would be due for renewal again and again.
	atMost("ExpirationBoundary", c.ExpirationBoundary, "half of WebhookCertificateExpiration", c.WebhookCertificateExpiration/2)
	return errors.Join(all...)
}

func namespaceProblem(s string) string {
	if len(validation.IsDNS1123Label(s)) > 0 {
		return quote(s) + " is not the name of a namespace"
	}
	return ""
}

func nameProblem(s string) string {
	if len(validation.IsDNS1123Subdomain(s)) > 0 {
		return quote(s) + " is not the name of an object"
	}
	return ""
}

func pullSecretsProblem(s string) string {
	seen := map[string]bool{}
	for _, name := range split(s) {
		if problem := nameProblem(name); problem != "" {
			return problem
		}
		if seen[name] {
			return quote(name) + " is duplicated"
		}
		seen[name] = true
	}
	return ""
}

func portsProblem(s string) string {
	seen := map[string]bool{}
	for port := range strings.SplitSeq(s, ",") {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
			return quote(port) + " is not a port"
		}
		if seen[port] {
			return quote(port) + " is duplicated"
		}
		seen[port] = true
	}
	return ""
}

func addressProblem(s string) string {
	if s == "0" {
		return ""
	}
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return quote(s) + " is not an address"
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return quote(s) + " has no port from 1 to 65535"
	}
	return ""
}

// quote shortens a value: a ConfigMap can contain a megabyte under any key.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}
