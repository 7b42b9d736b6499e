package config_test

import (
	"errors"
	"flag"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/services/btp-manager/internal/config"
)

func TestDefault_Settings_EqualOriginal(t *testing.T) {
	t.Parallel()
	require.NoError(t, config.Default().Validate())
	// docs/contracts/btp-manager.md#timers, column of December 2022, and the lifetimes of certificates of today.
	want := map[string]string{
		"ProcessingStateRequeueInterval": "5m", "ReadyStateRequeueInterval": "1h", "ReadyTimeout": "1m", "ReadyCheckInterval": "2s",
		"HardDeleteTimeout": "20m", "HardDeleteCheckInterval": "10s", "DeleteRequestTimeout": "30s",
		"CaCertificateExpiration": "87600h", "WebhookCertificateExpiration": "8760h", "ExpirationBoundary": "168h",
		"BlockDeletion": "false", "OperandFirst": "false", "EnableLimitedCache": "true", "LeaderElect": "true",
		"ChartNamespace": "kyma-system", "SecretName": "sap-btp-manager", "ConfigName": "sap-btp-manager",
		"OperandPullSecrets": "", "OperandEgressPorts": "443,6443", "MetricsBindAddress": ":8080", "HealthProbeBindAddress": ":8081",
	}
	got := make(map[string]string)
	for _, s := range config.Settings() {
		got[s.Key] = s.Default
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSettings_Each_HasAFlag(t *testing.T) {
	t.Parallel()
	other := map[string]string{"duration": "2h", "bool": "toggle", "string": "other"}
	for _, s := range config.Settings() {
		value := other[s.Type]
		switch {
		case s.Type == "bool" && s.Default == "true":
			value = "false"
		case s.Type == "bool":
			value = "true"
		}
		c := config.Default()
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		c.Flags(fs)
		if err := fs.Parse([]string{"--" + s.Flag + "=" + value}); err != nil {
			t.Errorf("%s: %v", s.Key, err)
		}
		if got := config.Diff(config.Default(), c); !slices.Equal(got, []string{s.Key}) {
			t.Errorf("flag %s changes %v", s.Flag, got)
		}
		if s.Flag != strings.ToLower(s.Flag) || strings.ReplaceAll(s.Flag, "-", "") != strings.ToLower(s.Key) {
			t.Errorf("flag %s of %s", s.Flag, s.Key)
		}
	}
}

func TestFlags_Unset_KeepDefaults(t *testing.T) {
	t.Parallel()
	c := config.Default()
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	c.Flags(fs)
	require.NoError(t, fs.Parse([]string{"--ready-timeout", "90s", "--leader-elect=false"}))
	want := config.Default()
	want.ReadyTimeout, want.LeaderElect = 90*time.Second, false
	if diff := cmp.Diff(want, c); diff != "" {
		t.Error(diff)
	}
	if fs.Lookup("hard-delete-timeout").DefValue != "20m0s" {
		t.Error("the usage does not show the default")
	}
}

func TestValidate_Invalid_NamesAllowedValues(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*config.Config)
		want   []config.InvalidError
	}{
		"zero duration": {
			func(c *config.Config) { c.ReadyTimeout = 0 },
			[]config.InvalidError{{"ReadyTimeout", "0s is not positive", "a duration from 100ms to 168h"}},
		},
		"negative duration": {
			func(c *config.Config) { c.HardDeleteCheckInterval = -time.Second },
			[]config.InvalidError{{"HardDeleteCheckInterval", "-1s is not positive", "a duration from 100ms to 1h"}},
		},
		"interval that keeps the API server busy": {
			func(c *config.Config) { c.ReadyStateRequeueInterval = 999 * time.Millisecond },
			[]config.InvalidError{{"ReadyStateRequeueInterval", "999ms is too short", "a duration from 1s to 24h"}},
		},
		"duration in the wrong unit": {
			func(c *config.Config) { c.HardDeleteTimeout = 1200 * time.Hour },
			[]config.InvalidError{{"HardDeleteTimeout", "1200h is too long", "a duration from 100ms to 168h"}},
		},
		"certificate for a minute": {
			func(c *config.Config) { c.WebhookCertificateExpiration = time.Minute },
			[]config.InvalidError{{"WebhookCertificateExpiration", "1m is too short", "a duration from 1h to 262800h"}},
		},
		"names that cannot be": {
			func(c *config.Config) { c.ChartNamespace, c.SecretName, c.ConfigName = "a.b", "A", "" },
			[]config.InvalidError{
				{"ChartNamespace", `"a.b" is not the name of a namespace`, "a DNS label: at most 63 lower-case letters, digits or hyphens, no hyphen at its ends"},
				{"SecretName", `"A" is not the name of an object`, "a DNS name: at most 253 lower-case letters, digits, hyphens or dots, a letter or digit at its ends"},
				{"ConfigName", `"" is not the name of an object`, "a DNS name: at most 253 lower-case letters, digits, hyphens or dots, a letter or digit at its ends"},
			},
		},
		"addresses that cannot be": {
			func(c *config.Config) { c.MetricsBindAddress, c.HealthProbeBindAddress = "8080", ":99999" },
			[]config.InvalidError{
				{"MetricsBindAddress", `"8080" is not an address`, "`host:port`, `:port`, or `0` for nowhere"},
				{"HealthProbeBindAddress", `":99999" has no port from 1 to 65535`, "`host:port`, `:port`, or `0` for nowhere"},
			},
		},
		"lists that cannot be": {
			func(c *config.Config) { c.OperandPullSecrets, c.OperandEgressPorts = "registry,,mirror", "443,https" },
			[]config.InvalidError{
				{"OperandPullSecrets", `"" is not the name of an object`, "different names of Secrets, separated by commas without spaces, or nothing"},
				{"OperandEgressPorts", `"https" is not a port`, "different ports from 1 to 65535, separated by commas without spaces"},
			},
		},
		"a Secret twice": {
			func(c *config.Config) { c.OperandPullSecrets = "a,a" },
			[]config.InvalidError{{"OperandPullSecrets", `"a" is duplicated`, "different names of Secrets, separated by commas without spaces, or nothing"}},
		},
		"a port twice": {
			func(c *config.Config) { c.OperandEgressPorts = "443,443" },
			[]config.InvalidError{{"OperandEgressPorts", `"443" is duplicated`, "different ports from 1 to 65535, separated by commas without spaces"}},
		},
		"no port": {
			func(c *config.Config) { c.OperandEgressPorts = "" },
			[]config.InvalidError{{"OperandEgressPorts", `"" is not a port`, "different ports from 1 to 65535, separated by commas without spaces"}},
		},
		"an address without a port": {
			func(c *config.Config) { c.MetricsBindAddress = "localhost:0" },
			[]config.InvalidError{{"MetricsBindAddress", `"localhost:0" has no port from 1 to 65535`, "`host:port`, `:port`, or `0` for nowhere"}},
		},
		"a check less often than its timeout": {
			func(c *config.Config) { c.ReadyTimeout, c.HardDeleteTimeout = time.Second, time.Second },
			[]config.InvalidError{
				{"ReadyCheckInterval", "2s is too long", "at most 1s, which is ReadyTimeout"},
				{"HardDeleteCheckInterval", "10s is too long", "at most 1s, which is HardDeleteTimeout"},
			},
		},
		"a serving certificate longer than its CA": {
			func(c *config.Config) { c.CaCertificateExpiration = 1000 * time.Hour },
			[]config.InvalidError{{"WebhookCertificateExpiration", "8760h is too long", "at most 1000h, which is CaCertificateExpiration"}},
		},
		"a certificate that is renewed all the time": {
			func(c *config.Config) { c.WebhookCertificateExpiration = 300 * time.Hour },
			[]config.InvalidError{{"ExpirationBoundary", "168h is too long", "at most 150h, which is half of WebhookCertificateExpiration"}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config.Default()
			tt.change(&c)
			if diff := cmp.Diff(tt.want, invalid(c.Validate())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// invalid splits a joined error. Any other error becomes an entry that no test expects.
func invalid(err error) []config.InvalidError {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []config.InvalidError{{Problem: "not joined: " + err.Error()}}
	}
	var all []config.InvalidError
	for _, err := range joined.Unwrap() {
		if more, ok := err.(interface{ Unwrap() []error }); ok {
			all = append(all, invalid(more.(error))...)
			continue
		}
		e, ok := errors.AsType[*config.InvalidError](err)
		if !ok {
			e = &config.InvalidError{Problem: err.Error()}
		}
		all = append(all, *e)
	}
	return all
}

func TestValidate_Addresses_AcceptHostsAndZero(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"0", ":1", "127.0.0.1:8080", "[::1]:8080", "localhost:65535"} {
		c := config.Default()
		c.MetricsBindAddress = address
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestDiff_Changes_AreSorted(t *testing.T) {
	t.Parallel()
	old := config.Default()
	if got := config.Diff(old, old); got != nil {
		t.Errorf("no change: %v", got)
	}
	changed := old
	changed.ReadyTimeout, changed.OperandFirst, changed.HardDeleteTimeout, changed.BlockDeletion = 2*time.Minute, true, time.Hour, true
	if got, want := config.Diff(old, changed), []string{"BlockDeletion", "HardDeleteTimeout", "OperandFirst", "ReadyTimeout"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
