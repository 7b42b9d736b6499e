package broker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/service"
	"github.com/kyma-project/keb/services/broker"
)

func usable() broker.Config {
	c := service.Defaults[broker.Config]()
	c.Database.URL = "postgres://keb@127.0.0.1/keb"
	c.User, c.Password, c.SealKeys = "keb", canary, "k1:"+seal.NewKey()
	return c
}

func TestDefaults_CredentialsAndKeys_AreEnough(t *testing.T) {
	t.Parallel()
	c := usable()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if len(c.Plans) != 9 || c.DefaultRegion != "cf-eu10" || c.RetryAfter != 10*time.Second || c.CatalogModified.IsZero() {
		t.Errorf("defaults are %+v", c.LogValue())
	}
	if got := fmt.Sprint(c.LogValue()); strings.Contains(got, canary) || strings.Contains(got, c.SealKeys) {
		t.Errorf("a secret is logged: %s", got)
	}
}

func TestConfig_SeveralErrors_ReportsAll(t *testing.T) {
	t.Parallel()
	c := usable()
	c.User, c.SealKeys, c.Plans, c.RetryAfter = "", "k1:short", []string{"azur"}, 0
	c.TrialLifetime, c.PublicURL, c.PlanChanges = 0, "keb.example.org", map[string]string{"azure": "azure_lite|aws"}
	err := c.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"KEB_OSB_USER and KEB_OSB_PASSWORD", "no credentials are configured", "KEB_SEAL_KEYS", `plan "azur" is not known`, "KEB_OSB_RETRY_AFTER",
		"KEB_TRIAL_LIFETIME", "KEB_BROKER_PUBLIC_URL", `plan changes: plan "aws" is not enabled`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if strings.Contains(err.Error(), canary) {
		t.Errorf("the error holds the password: %v", err)
	}
	c = usable()
	c.JWTIssuer = "https://issuer.example.org"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "KEB_OSB_JWT_*") {
		t.Errorf("error is %v", err)
	}
}

func TestConfig_SeveralErrors_HaveAStableOrder(t *testing.T) {
	t.Parallel()
	c := usable()
	c.TrialLifetime, c.FreeLifetime, c.RetryAfter, c.StoreTimeout, c.SweepEvery, c.BindingGrace = 0, 0, 0, 0, 0, 0
	first := c.Validate()
	if first == nil {
		t.Fatal("no error")
	}
	for range 20 {
		if again := c.Validate(); again.Error() != first.Error() {
			t.Fatalf("the errors are\n%v\nand then\n%v", first, again)
		}
	}
}

func TestNew_MissingDependency_ReturnsError(t *testing.T) {
	t.Parallel()
	if _, err := broker.New(t.Context(), usable(), broker.Deps{}); err == nil {
		t.Error("no error")
	}
}
