package btp

import (
	"context"
	"errors"

	"github.com/google/uuid"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/worker"
)

// claim returns the instance's credentials. Its error contains every missing or invalid member.
func claim(ctx context.Context, op worker.Operation) (event.ServiceManagerCredentials, error) {
	var c event.ServiceManagerCredentials
	if err := op.ClaimCredentials(ctx, event.CredentialsServiceManager, &c); err != nil {
		return c, err
	}
	return c, c.Validate()
}

// incomplete reports whether credentials are missing or invalid. Repeating the step cannot correct them.
func incomplete(err error) bool {
	_, ok := errors.AsType[*event.FieldError](err)
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
