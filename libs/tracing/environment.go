package tracing

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// checkEnvironment reports whether tracing is on, and validates the variables: the libraries read them, but use defaults for invalid
// values. Errors contain no values that may be secrets.
func checkEnvironment() (on bool, err error) {
	var c checker
	disabled := c.oneOf("OTEL_SDK_DISABLED", "true", "false")
	exporter := c.oneOf("OTEL_TRACES_EXPORTER", "otlp", "none")
	named := false
	for _, name := range both("ENDPOINT") {
		named = c.endpoint(name) || named
	}
	if !named || disabled == "true" || exporter == "none" {
		return false, errors.Join(c.problems...)
	}
	for _, name := range both("HEADERS") {
		c.pairs(name)
	}
	for _, name := range both("TIMEOUT") {
		c.milliseconds(name, 1)
	}
	for _, name := range both("COMPRESSION") {
		c.oneOf(name, "gzip", "none")
	}
	for _, name := range both("PROTOCOL") {
		c.oneOf(name, "http/protobuf", "http/json")
	}
	for _, name := range both("INSECURE") {
		c.oneOf(name, "true", "false")
	}
	for _, name := range both("CERTIFICATE") {
		c.certificates(name)
	}
	certificates, keys := both("CLIENT_CERTIFICATE"), both("CLIENT_KEY")
	for i := range certificates {
		c.keyPair(certificates[i], keys[i])
	}
	c.sampler()
	c.pairs("OTEL_RESOURCE_ATTRIBUTES")
	c.milliseconds("OTEL_BSP_SCHEDULE_DELAY", 1)
	c.milliseconds("OTEL_BSP_EXPORT_TIMEOUT", 1)
	c.count("OTEL_BSP_MAX_QUEUE_SIZE", maxQueue)
	c.count("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", maxQueue)
	return true, errors.Join(c.problems...)
}

// maxQueue limits the number of waiting spans. Each takes a few kilobytes.
const maxQueue = 1 << 16

// both returns the variables of a setting for all signals, and for traces, which takes precedence.
func both(setting string) []string {
	return []string{"OTEL_EXPORTER_OTLP_" + setting, "OTEL_EXPORTER_OTLP_TRACES_" + setting}
}

// checker collects errors.
type checker struct{ problems []error }

func (c *checker) bad(name, format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf("%s: %s", name, fmt.Sprintf(format, args...)))
}

// get returns the value of a variable. An empty one counts as not set.
func get(name string) string { return strings.TrimSpace(os.Getenv(name)) }

func (c *checker) oneOf(name string, allowed ...string) string {
	v := strings.ToLower(get(name))
	if v != "" && !slices.Contains(allowed, v) {
		c.bad(name, "%.40q is not allowed, use %s", v, strings.Join(allowed, " or "))
	}
	return v
}

func (c *checker) endpoint(name string) (set bool) {
	v := get(name)
	if v == "" {
		return false
	}
	u, err := url.Parse(v)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		c.bad(name, "want an absolute http or https URL, for example http://localhost:4318")
	case u.User != nil:
		c.bad(name, "must not hold a user and password, use OTEL_EXPORTER_OTLP_HEADERS")
	case u.RawQuery != "" || u.Fragment != "":
		c.bad(name, "must not have a query or a fragment")
	}
	return true
}

func (c *checker) pairs(name string) {
	v := get(name)
	if v == "" {
		return
	}
	for i, pair := range strings.Split(v, ",") {
		key, value, ok := strings.Cut(pair, "=")
		_, err := url.PathUnescape(value)
		if !ok || strings.TrimSpace(key) == "" || err != nil {
			c.bad(name, "entry %d is not name=value (special characters of the value as %%XX), entries are separated by commas", i+1)
			return
		}
	}
}

func (c *checker) milliseconds(name string, least int) {
	if v := get(name); v != "" {
		if n, err := strconv.Atoi(v); err != nil || n < least {
			c.bad(name, "%.40q is not a whole number of milliseconds, at least %d", v, least)
		}
	}
}

func (c *checker) count(name string, most int) {
	if v := get(name); v != "" {
		if n, err := strconv.Atoi(v); err != nil || n < 1 || n > most {
			c.bad(name, "%.40q is not a number from 1 to %d", v, most)
		}
	}
}

func (c *checker) sampler() {
	s := c.oneOf("OTEL_TRACES_SAMPLER", "always_on", "always_off", "traceidratio",
		"parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio")
	arg, set := os.LookupEnv("OTEL_TRACES_SAMPLER_ARG")
	if !set || !strings.HasSuffix(s, "traceidratio") {
		return
	}
	ratio, err := strconv.ParseFloat(strings.TrimSpace(arg), 64)
	if err != nil || !(ratio >= 0 && ratio <= 1) {
		c.bad("OTEL_TRACES_SAMPLER_ARG", "%.40q is not a number from 0 to 1", arg)
	}
}

func (c *checker) certificates(name string) {
	path := get(name)
	if path == "" {
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		c.bad(name, "the file it names cannot be read")
		return
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) {
		c.bad(name, "the file it names holds no certificate")
	}
}

func (c *checker) keyPair(certificate, key string) {
	switch cert, k := get(certificate), get(key); {
	case cert == "" && k == "":
	case cert == "" || k == "":
		c.bad(certificate, "is only of use together with %s", key)
	default:
		if _, err := tls.LoadX509KeyPair(cert, k); err != nil {
			c.bad(certificate, "it and %s do not name a certificate and its key", key)
		}
	}
}
