package access

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/seal"
)

// ModeNone is the only value of Config.Mode: access control is off, although other machines can reach the address.
const ModeNone = "none"

const (
	defaultRolesClaim = "groups"
	defaultLifetime   = 8 * time.Hour
)

// Config assigns roles to clients. With the zero value access control is off, which CheckAddress allows only on a loopback address.
type Config struct {
	// Mode is empty, or ModeNone to switch off access control.
	Mode string `env:"KEB_ACCESS"`
	// TokensFile is a YAML file of static tokens: a list of {name, role, sha256}. It is read again when it changes.
	TokensFile string `env:"KEB_ACCESS_TOKENS_FILE"`
	// OIDCIssuer is the URL of an OpenID Connect issuer; OIDCAudience the client id in its tokens.
	OIDCIssuer   string `env:"KEB_ACCESS_OIDC_ISSUER"`
	OIDCAudience string `env:"KEB_ACCESS_OIDC_AUDIENCE"`
	// OIDCClientSecret is for the login of browsers. A public client has none.
	OIDCClientSecret string `env:"KEB_ACCESS_OIDC_CLIENT_SECRET"`
	// OIDCRolesClaim is the claim that determines the role; the default is "groups". Dots lead into objects ("realm_access.roles"). A
	// value in OIDCOperators grants the role operator, one in OIDCViewers the role viewer.
	OIDCRolesClaim string   `env:"KEB_ACCESS_OIDC_ROLES_CLAIM"`
	OIDCViewers    []string `env:"KEB_ACCESS_OIDC_VIEWERS"`
	OIDCOperators  []string `env:"KEB_ACCESS_OIDC_OPERATORS"`
	// OIDCScopes are the scopes of a browser's login. The default is openid, profile and email, and groups if that is the roles claim.
	OIDCScopes []string `env:"KEB_ACCESS_OIDC_SCOPES"`
	// SessionKey is the keyring that seals session cookies, "id1:base64key,id2:base64key" (package seal). If it is empty, the process
	// generates a key and does not store it.
	SessionKey string `env:"KEB_ACCESS_SESSION_KEY"`
	// SessionLifetime is the maximum duration of a browser's session, eight hours if zero. With OIDC it ends no later than the token.
	SessionLifetime time.Duration `env:"KEB_ACCESS_SESSION_LIFETIME"`
	// TrustedProxies are the addresses or networks (CIDR) of proxies whose X-Forwarded-For is trusted.
	TrustedProxies []string `env:"KEB_ACCESS_TRUSTED_PROXIES"`
	// Clients limits the requests of each client.
	Clients ClientLimits
}

// Enabled reports whether clients must authenticate.
func (c Config) Enabled() bool { return c.TokensFile != "" || c.OIDCIssuer != "" }

// Validate reports every invalid setting. It reads the token file, and needs no network.
func (c Config) Validate() error {
	var problems []error
	if c.Mode != "" && c.Mode != ModeNone {
		problems = append(problems, fmt.Errorf("KEB_ACCESS: %q: allowed is only %q, or nothing", c.Mode, ModeNone))
	}
	if c.Mode == ModeNone && c.Enabled() {
		problems = append(problems, errors.New("KEB_ACCESS: none contradicts KEB_ACCESS_TOKENS_FILE and KEB_ACCESS_OIDC_ISSUER: set one or the other"))
	}
	if c.TokensFile != "" {
		if _, err := loadTokens(c.TokensFile); err != nil {
			problems = append(problems, fmt.Errorf("KEB_ACCESS_TOKENS_FILE: %w", err))
		}
	}
	problems = append(problems, c.validateOIDC()...)
	if c.SessionKey != "" {
		if _, err := seal.ParseKeyring(c.SessionKey); err != nil {
			problems = append(problems, fmt.Errorf("KEB_ACCESS_SESSION_KEY: %w", err))
		}
	}
	if c.SessionLifetime < 0 {
		problems = append(problems, fmt.Errorf("KEB_ACCESS_SESSION_LIFETIME: %s: must not be negative", c.SessionLifetime))
	}
	if _, err := c.proxies(); err != nil {
		problems = append(problems, fmt.Errorf("KEB_ACCESS_TRUSTED_PROXIES: %w", err))
	}
	if err := c.Clients.validate(); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

func (c Config) validateOIDC() []error {
	var problems []error
	if c.OIDCIssuer == "" {
		for name, set := range map[string]bool{
			"KEB_ACCESS_OIDC_AUDIENCE": c.OIDCAudience != "", "KEB_ACCESS_OIDC_CLIENT_SECRET": c.OIDCClientSecret != "",
			"KEB_ACCESS_OIDC_ROLES_CLAIM": c.OIDCRolesClaim != "", "KEB_ACCESS_OIDC_VIEWERS": len(c.OIDCViewers) > 0,
			"KEB_ACCESS_OIDC_OPERATORS": len(c.OIDCOperators) > 0, "KEB_ACCESS_OIDC_SCOPES": len(c.OIDCScopes) > 0,
		} {
			if set {
				problems = append(problems, fmt.Errorf("%s: has no effect without KEB_ACCESS_OIDC_ISSUER", name))
			}
		}
		slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return problems
	}
	u, err := url.Parse(c.OIDCIssuer)
	switch {
	case err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil || (u.Scheme != "https" && u.Scheme != "http"):
		problems = append(problems, errors.New("KEB_ACCESS_OIDC_ISSUER: must be a URL such as https://issuer.example.org, without user, query and fragment"))
	case u.Scheme == "http" && !loopback(u.Hostname()):
		problems = append(problems, fmt.Errorf("KEB_ACCESS_OIDC_ISSUER: %q must begin with https, because its keys grant access", c.OIDCIssuer))
	}
	if c.OIDCAudience == "" {
		problems = append(problems, errors.New("KEB_ACCESS_OIDC_AUDIENCE: is required with KEB_ACCESS_OIDC_ISSUER: the client id that tokens are for"))
	}
	if len(c.OIDCViewers)+len(c.OIDCOperators) == 0 {
		problems = append(problems, fmt.Errorf(
			"KEB_ACCESS_OIDC_VIEWERS and KEB_ACCESS_OIDC_OPERATORS: no client would have a role: set one of them to values of the claim %q", c.rolesClaim()))
	}
	for name, values := range map[string][]string{"KEB_ACCESS_OIDC_VIEWERS": c.OIDCViewers, "KEB_ACCESS_OIDC_OPERATORS": c.OIDCOperators} {
		if slices.Contains(values, "") {
			problems = append(problems, fmt.Errorf("%s: the list contains an empty value", name))
		}
	}
	if len(c.OIDCScopes) > 0 && !slices.Contains(c.OIDCScopes, "openid") {
		problems = append(problems, errors.New("KEB_ACCESS_OIDC_SCOPES: must contain openid"))
	}
	return problems
}

// CheckAddress returns an error if access control is off at an address ("host:port") that other machines can reach, unless Mode
// allows it.
func (c Config) CheckAddress(variable, addr string) error {
	if c.Enabled() || c.Mode == ModeNone {
		return nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err == nil && loopback(host) {
		return nil
	}
	return fmt.Errorf(`%s: %q is not a loopback address, so access control is required: set KEB_ACCESS_TOKENS_FILE or KEB_ACCESS_OIDC_ISSUER, or KEB_ACCESS=none if something else protects the address`,
		variable, addr)
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func (c Config) rolesClaim() string {
	if c.OIDCRolesClaim == "" {
		return defaultRolesClaim
	}
	return c.OIDCRolesClaim
}

func (c Config) lifetime() time.Duration {
	if c.SessionLifetime == 0 {
		return defaultLifetime
	}
	return c.SessionLifetime
}

// role returns the highest role that the values of the roles claim grant.
func (c Config) role(values []string) Role {
	switch has := func(wanted []string) bool {
		return slices.ContainsFunc(values, func(v string) bool { return slices.Contains(wanted, v) })
	}; {
	case has(c.OIDCOperators):
		return Operator
	case has(c.OIDCViewers):
		return Viewer
	}
	return ""
}

func (c Config) proxies() ([]netip.Prefix, error) {
	var trusted []netip.Prefix
	for _, text := range c.TrustedProxies {
		text = strings.TrimSpace(text)
		if prefix, err := netip.ParsePrefix(text); err == nil {
			trusted = append(trusted, prefix.Masked())
			continue
		}
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor a network such as 10.0.0.0/8", text)
		}
		addr = addr.Unmap()
		trusted = append(trusted, netip.PrefixFrom(addr, addr.BitLen()))
	}
	return trusted, nil
}
