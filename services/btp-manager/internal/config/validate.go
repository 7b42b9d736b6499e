package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

// InvalidError says what is wrong with a setting.
type InvalidError struct {
	// Key is the setting, or the key in the ConfigMap that is none.
	Key string
	// Problem is what is wrong with its value.
	Problem string
	// Allowed is what would be right.
	Allowed string
}

// Error names the key, the problem, and what is allowed.
func (e *InvalidError) Error() string { return e.Key + ": " + e.Problem + ": want " + e.Allowed }

const (
	namespaceAllowed = "a DNS label: at most 63 lower-case letters, digits or hyphens, no hyphen at its ends"
	nameAllowed      = "a DNS name: at most 253 lower-case letters, digits, hyphens or dots, a letter or digit at its ends"
	addressAllowed   = "`host:port`, `:port`, or `0` for nowhere"
)

// Validate answers an InvalidError for each setting that cannot be, joined.
func (c Config) Validate() error {
	var all []error
	for _, s := range table() {
		if problem := s.problem(&c); problem != "" {
			all = append(all, &InvalidError{s.Key, problem, s.Allowed})
		}
	}
	if len(all) > 0 {
		// How settings fit together says nothing while one of them is wrong.
		return errors.Join(all...)
	}
	return c.consistent()
}

// consistent checks the settings against each other.
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
	// A certificate that is due for renewal soon after it was made would be renewed all the time.
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

// quote shortens what is shown: a ConfigMap may hold a megabyte under any key.
func quote(s string) string {
	const most = 64
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}
