package servicemanager

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// credentials are secret, except for the URL.
type credentials struct{ url, user, password string }

// String keeps the credentials out of logs and errors.
func (credentials) String() string { return "[redacted]" }

// overrides passes the credentials of the Service Manager to its proxy through the stage memory.
func (cfg Config) overrides(ctx context.Context, op worker.Operation, _ *slog.Logger) (worker.Operation, time.Duration, error) {
	c := credentials{cfg.URL, cfg.Username, cfg.Password}
	sent := slices.Contains(op.Credentials, event.CredentialsPlatform)
	switch {
	case cfg.Mode == Never && !sent:
		return worker.Fail(op, &worker.Error{Component: "keb", Message: fmt.Sprintf(
			"context.%s is missing, and KEB_SERVICE_MANAGER_OVERRIDE_MODE is %s: want credentials in the order, or another mode",
			event.CredentialsPlatform, Never)})
	case cfg.Mode != Always && sent:
		var got struct {
			URL         string `json:"url"`
			Credentials struct {
				Basic struct {
					Username string `json:"username"`
					Password string `json:"password"`
				} `json:"basic"`
			} `json:"credentials"`
		}
		if err := op.ClaimCredentials(ctx, event.CredentialsPlatform, &got); err != nil {
			return worker.Retry(op, cfg.RetryInterval, err)
		}
		c = credentials{got.URL, got.Credentials.Basic.Username, got.Credentials.Basic.Password}
		if missing := c.missing(); len(missing) > 0 {
			return worker.Fail(op, &worker.Error{Component: "keb", Message: event.CredentialsPlatform + ": missing " + strings.Join(missing, ", ")})
		}
	}
	op.SetOverrides(Component, []worker.Override{
		{Key: "config.sm.url", Value: c.url},
		{Key: "sm.user", Value: c.user},
		{Key: "sm.password", Value: c.password, Secret: true},
	})
	return op, 0, nil
}

// missing returns the members that the order lacks.
func (c credentials) missing() []string {
	var names []string
	for _, m := range []struct{ name, value string }{{"url", c.url}, {"credentials.basic.username", c.user}, {"credentials.basic.password", c.password}} {
		if m.value == "" {
			names = append(names, m.name)
		}
	}
	return names
}
