package catalog

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// OIDC holds the OpenID Connect settings for users of a runtime (docs/contracts/plans.md#oidc-and-administrators).
type OIDC struct {
	ClientID       string   `json:"clientID"`
	IssuerURL      string   `json:"issuerURL"`
	GroupsClaim    string   `json:"groupsClaim"`
	SigningAlgs    []string `json:"signingAlgs"`
	UsernameClaim  string   `json:"usernameClaim"`
	UsernamePrefix string   `json:"usernamePrefix"`
}

// DefaultOIDC returns the default of orders without oidc.
func DefaultOIDC() OIDC {
	return OIDC{
		ClientID: "9bd05ed7-a930-44e6-8c79-e6defeb7dec9", IssuerURL: "https://kymatest.accounts400.ondemand.com",
		GroupsClaim: "groups", SigningAlgs: []string{"RS256"}, UsernameClaim: "sub", UsernamePrefix: "-",
	}
}

var signingAlgs = []string{
	"RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512",
}

// check reports invalid values. It expects the defaults to be set.
func (o OIDC) check() Problems {
	var found Problems
	if strings.TrimSpace(o.ClientID) == "" {
		found = append(found, problem("/oidc/clientID", "must not be empty"))
	}
	u, err := url.Parse(o.IssuerURL)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		found = append(found, problem("/oidc/issuerURL", "must be an absolute https URL"))
	}
	for i, alg := range o.SigningAlgs {
		if !slices.Contains(signingAlgs, alg) {
			found = append(found,
				problem("/oidc/signingAlgs/"+strconv.Itoa(i), "must be one of %s", strings.Join(signingAlgs, ", ")))
		}
	}
	return found
}

// withDefaults sets the omitted members to their defaults.
func (o OIDC) withDefaults(d OIDC) OIDC {
	fill := func(have *string, preset string) {
		if *have == "" {
			*have = preset
		}
	}
	fill(&o.GroupsClaim, d.GroupsClaim)
	fill(&o.UsernameClaim, d.UsernameClaim)
	fill(&o.UsernamePrefix, d.UsernamePrefix)
	if len(o.SigningAlgs) == 0 {
		o.SigningAlgs = d.SigningAlgs
	}
	return o
}
