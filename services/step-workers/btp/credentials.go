package btp

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// credentials are those of the Service Manager (facts/keb.md 2.6). They are secret.
type credentials struct {
	ClientID     string `json:"clientid"`
	ClientSecret string `json:"clientsecret"`
	SMURL        string `json:"sm_url"`
	URL          string `json:"url"`
	XSAppName    string `json:"xsappname"`
}

// String keeps the credentials out of any text.
func (credentials) String() string { return "[redacted]" }

// claim gets the instance's credentials. A missing member is an error that names it.
func claim(ctx context.Context, op worker.Operation) (credentials, error) {
	var c credentials
	if err := op.ClaimCredentials(ctx, event.CredentialsServiceManager, &c); err != nil {
		return c, err
	}
	var missing []string
	for name, value := range map[string]string{"clientid": c.ClientID, "clientsecret": c.ClientSecret, "sm_url": c.SMURL, "url": c.URL} {
		if value == "" {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return c, &incompleteError{missing: missing}
	}
	return c, nil
}

// incompleteError tells which members of the credentials are missing. Nothing but a new order can mend it.
type incompleteError struct{ missing []string }

// Error names the members.
func (e *incompleteError) Error() string {
	return "sm_operator_credentials: missing " + strings.Join(e.missing, ", ")
}

func incomplete(err error) bool {
	_, ok := errors.AsType[*incompleteError](err)
	return ok || errors.Is(err, worker.ErrNoCredentials)
}

// clusterID identifies the runtime to the Service Manager. It follows from the instance, so it is the same in every
// step, attempt and operation; a saved one wins, as it may come from elsewhere.
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
