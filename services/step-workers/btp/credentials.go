package btp

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"unicode"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// credentials are the secret credentials of the Service Manager (docs/contracts/btp.md#credentials).
type credentials struct {
	ClientID     string `json:"clientid"`
	ClientSecret string `json:"clientsecret"`
	SMURL        string `json:"sm_url"`
	URL          string `json:"url"`
	XSAppName    string `json:"xsappname"`
}

// String keeps the credentials out of logs and errors.
func (credentials) String() string { return "[redacted]" }

// claim returns the instance's credentials. Its error contains every missing or invalid member.
func claim(ctx context.Context, op worker.Operation) (credentials, error) {
	var c credentials
	if err := op.ClaimCredentials(ctx, event.CredentialsServiceManager, &c); err != nil {
		return c, err
	}
	return c, c.check()
}

// check rejects credentials that the BTP manager would reject in the runtime, where the operator cannot see the error.
func (c credentials) check() error {
	var e incompleteError
	for _, m := range []struct {
		name, value string
		address     bool
	}{
		{"clientid", c.ClientID, false},
		{"clientsecret", c.ClientSecret, false},
		{"sm_url", c.SMURL, true},
		{"url", c.URL, true},
	} {
		switch {
		case strings.TrimSpace(m.value) == "":
			e.missing = append(e.missing, m.name)
		case strings.TrimSpace(m.value) != m.value || strings.ContainsFunc(m.value, unicode.IsControl):
			e.wrong = append(e.wrong, m.name+" has white space around it or control characters")
		case m.address && !isAddress(m.value):
			e.wrong = append(e.wrong, m.name+" is not an http or https URL without credentials, query and fragment")
		}
	}
	if len(e.missing)+len(e.wrong) == 0 {
		return nil
	}
	return &e
}

func isAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil && !strings.ContainsAny(text, "?#")
}

// incompleteError contains the missing and the invalid members of the credentials. Only a new order can correct them.
type incompleteError struct{ missing, wrong []string }

// Error returns the names of the members, without their values.
func (e *incompleteError) Error() string {
	found := e.wrong
	if len(e.missing) > 0 {
		found = append([]string{"missing " + strings.Join(e.missing, ", ")}, e.wrong...)
	}
	return "sm_operator_credentials: " + strings.Join(found, "; ")
}

func incomplete(err error) bool {
	_, ok := errors.AsType[*incompleteError](err)
	return ok || errors.Is(err, worker.ErrNoCredentials)
}

// clusterID returns the id of the runtime in the Service Manager. It is derived from the instance, so it is the same in every
// step, attempt and operation. A saved id takes precedence, because it may come from the BTP operator.
func clusterID(op worker.Operation) (string, error) {
	var d Details
	if err := op.Details(Name, &d); err != nil {
		return "", err
	}
	if d.ClusterID != "" {
		return d.ClusterID, nil
	}
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte("keb service manager cluster "+op.InstanceID)).String(), nil
}
