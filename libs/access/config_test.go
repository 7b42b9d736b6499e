package access

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/seal"
)

func TestConfig_InvalidSettings_AreNamed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, file, line(t, "jane", Operator, "x"))
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	write(t, bad, "- {name: jane, role: boss, sha256: CANARY}")
	good := Config{OIDCIssuer: "https://issuer.example.org", OIDCAudience: "keb", OIDCOperators: []string{"admins"}}
	with := func(change func(c *Config)) Config {
		c := good
		change(&c)
		return c
	}
	for name, tc := range map[string]struct {
		cfg  Config
		want []string
	}{
		"another mode":       {Config{Mode: "all"}, []string{`KEB_ACCESS: "all": allowed is only "none"`}},
		"none and tokens":    {Config{Mode: ModeNone, TokensFile: file}, []string{"KEB_ACCESS: none contradicts"}},
		"no token file":      {Config{TokensFile: file + "x"}, []string{"KEB_ACCESS_TOKENS_FILE: the file cannot be read: no such file"}},
		"bad token file":     {Config{TokensFile: bad}, []string{"KEB_ACCESS_TOKENS_FILE: line 1: role: allowed are viewer, operator and sender"}},
		"roles alone":        {Config{OIDCViewers: []string{"a"}, OIDCAudience: "x"}, []string{"KEB_ACCESS_OIDC_VIEWERS: has no effect without", "KEB_ACCESS_OIDC_AUDIENCE: has no effect"}},
		"no audience":        {with(func(c *Config) { c.OIDCAudience = "" }), []string{"KEB_ACCESS_OIDC_AUDIENCE: is required"}},
		"no roles":           {with(func(c *Config) { c.OIDCOperators = nil }), []string{`no client would have a role`, `"groups"`}},
		"an empty group":     {with(func(c *Config) { c.OIDCViewers = []string{"a", ""} }), []string{"KEB_ACCESS_OIDC_VIEWERS: the list contains an empty value"}},
		"no URL":             {with(func(c *Config) { c.OIDCIssuer = "issuer" }), []string{"KEB_ACCESS_OIDC_ISSUER: must be a URL"}},
		"a password in it":   {with(func(c *Config) { c.OIDCIssuer = "https://a:CANARY@issuer" }), []string{"KEB_ACCESS_OIDC_ISSUER: must be a URL"}},
		"no TLS":             {with(func(c *Config) { c.OIDCIssuer = "http://issuer.example.org" }), []string{"must begin with https"}},
		"no openid":          {with(func(c *Config) { c.OIDCScopes = []string{"email"} }), []string{"KEB_ACCESS_OIDC_SCOPES: must contain openid"}},
		"bad session key":    {Config{SessionKey: "CANARY"}, []string{"KEB_ACCESS_SESSION_KEY: parse keyring"}},
		"a short lifetime":   {Config{SessionLifetime: -time.Second}, []string{"KEB_ACCESS_SESSION_LIFETIME: -1s"}},
		"a proxy by a name":  {Config{TrustedProxies: []string{"proxy"}}, []string{`KEB_ACCESS_TRUSTED_PROXIES: "proxy" is neither`}},
		"several at one go":  {Config{Mode: "x", SessionLifetime: -1, TokensFile: bad}, []string{"KEB_ACCESS:", "KEB_ACCESS_SESSION_LIFETIME", "KEB_ACCESS_TOKENS_FILE"}},
		"a file as its text": {Config{TokensFile: filepath.Dir(file)}, []string{"KEB_ACCESS_TOKENS_FILE: the file cannot be read: is a directory"}},
	} {
		err := tc.cfg.Validate()
		for _, want := range tc.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
		if err != nil && strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%s: the error has a secret: %v", name, err)
		}
		if _, err := New(tc.cfg, Deps{}); err == nil {
			t.Errorf("%s: New accepts it", name)
		}
	}
	for name, cfg := range map[string]Config{
		"nothing": {}, "none": {Mode: ModeNone}, "tokens": {TokensFile: file}, "an issuer": good,
		"everything": with(func(c *Config) {
			c.TokensFile, c.SessionKey, c.OIDCClientSecret = file, "k1:"+seal.NewKey(), "s"
			c.TrustedProxies, c.OIDCScopes = []string{"10.0.0.0/8", "::1"}, []string{"openid", "groups"}
		}),
		"a local issuer": with(func(c *Config) { c.OIDCIssuer = "http://127.0.0.1:5556/dex" }),
	} {
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheckAddress_AccessControlOff_MustBeLoopback(t *testing.T) {
	t.Parallel()
	for addr, loopback := range map[string]bool{
		"127.0.0.1:8081": true, "localhost:8081": true, "[::1]:8081": true, "127.8.8.8:1": true,
		"0.0.0.0:8081": false, ":8081": false, "[::]:8081": false, "10.0.0.1:8081": false, "keb.example.org:8081": false, "nonsense": false,
	} {
		err := Config{}.CheckAddress("KEB_OPERATOR_ADDR", addr)
		if (err == nil) != loopback {
			t.Errorf("%s: %v", addr, err)
		}
		for _, want := range []string{"KEB_OPERATOR_ADDR", "KEB_ACCESS_TOKENS_FILE", "KEB_ACCESS_OIDC_ISSUER", "KEB_ACCESS=none"} {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", addr, err, want)
			}
		}
		for _, cfg := range []Config{{Mode: ModeNone}, {TokensFile: "x"}, {OIDCIssuer: "x"}} {
			if err := cfg.CheckAddress("KEB_OPERATOR_ADDR", addr); err != nil {
				t.Errorf("%s %+v: %v", addr, cfg, err)
			}
		}
	}
}
