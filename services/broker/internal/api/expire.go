package api

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/catalog"
	"github.com/kyma-project/keb/services/broker/internal/instance"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Expire marks an instance that is old enough as expired, and suspends it (docs/contracts/broker.md#suspension-and-expiry). It
// returns the id of the suspending operation. If another operation prevents the suspension, the instance is marked as expired
// nevertheless. The error is an *osb.Error.
func (b *Broker) Expire(ctx context.Context, call osb.Call, instanceID string) (string, error) {
	var (
		operationID = newOperationID()
		operation   string
		refused     *osb.Error
	)
	err := b.deps.Store.InTx(ctx, func(ctx context.Context, tx *store.Tx) error {
		operation, refused = "", nil
		i, newest, err := lockLive(ctx, tx, instanceID)
		if err != nil {
			return err
		}
		if err := b.checkAge(i); err != nil {
			return err
		}
		if err := tx.Expire(ctx, i.ID, b.deps.Now()); err != nil {
			return err
		}
		operation, err = b.suspendFor(ctx, tx, call, i, newest, operationID, event.PurposeExpiry)
		if e, ok := errors.AsType[*osb.Error](err); ok {
			refused, err = e, nil
		}
		if err == nil && refused == nil && operation == "" {
			operation = newest.ID
		}
		return err
	})
	if err != nil {
		return "", answer(err)
	}
	if operation == operationID {
		b.deps.Notify(instanceID)
	}
	b.audit(call, "expire", instanceID, operation)
	if refused != nil {
		return "", refused
	}
	return operation, nil
}

// lifetime returns the age from which an instance can expire. Zero means never.
func (b *Broker) lifetime(plan string) time.Duration {
	switch plan {
	case catalog.Trial:
		return b.cfg.TrialLifetime
	case catalog.Free:
		return b.cfg.FreeLifetime
	}
	return 0
}

func (b *Broker) checkAge(i *instance.Instance) error {
	lifetime := b.lifetime(i.Plan.Name)
	if lifetime == 0 {
		return osb.BadRequest("instances of plan %s do not expire, only those of %s and %s", i.Plan.Name, catalog.Trial, catalog.Free)
	}
	end := i.CreatedAt.Add(lifetime)
	if i.ExpiredAt.IsZero() && b.deps.Now().Before(end) {
		return osb.BadRequest("the instance is not old enough: it may expire from %s on", end.UTC().Format(time.RFC3339))
	}
	return nil
}

// expiration describes, for people, when an instance of plan trial expires.
func (b *Broker) expiration(i *instance.Instance) string {
	if !i.ExpiredAt.IsZero() {
		return "Your cluster has expired. Delete it, and create another one if you need it."
	}
	// People count calendar days.
	const day = 24 * time.Hour
	days := int(i.CreatedAt.Add(b.cfg.TrialLifetime).Truncate(day).Sub(b.deps.Now().Truncate(day)) / day)
	switch {
	case days <= 0:
		return "Your cluster expires today."
	case days == 1:
		return "Your cluster expires tomorrow."
	}
	return fmt.Sprintf("Your cluster expires in %d days.", days)
}

// ExpirePattern is the route of ExpireHandler.
const ExpirePattern = "PUT /expire/service_instance/{instance_id}"

// ExpireHandler serves Expire to clients that auth accepts. Errors have the format of the Open Service Broker API.
func (b *Broker) ExpireHandler(auth osb.Authenticator) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		operation, err := b.expireFor(r, auth)
		if err == nil {
			writeJSON(w, http.StatusAccepted, broker.Expired{Operation: operation})
			return
		}
		e, ok := errors.AsType[*osb.Error](err)
		if !ok {
			e = &osb.Error{Status: http.StatusInternalServerError, Description: "the service broker failed: see its log", Err: err}
		}
		if e.Err != nil {
			b.deps.Log.Warn("instance not expired", "instance_id", r.PathValue("instance_id"), "err", e.Err)
		}
		if e.Status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", auth.Challenge())
		}
		e.SetHeader(w.Header())
		writeJSON(w, e.Status, broker.OSBFailure{Error: e.Code, Description: e.Description})
	})
}

func (b *Broker) expireFor(r *http.Request, auth osb.Authenticator) (string, error) {
	principal, err := auth.Authenticate(r)
	if _, ok := errors.AsType[*osb.Error](err); ok {
		return "", err
	}
	if err != nil {
		return "", &osb.Error{Status: http.StatusUnauthorized, Description: "credentials are missing or wrong"}
	}
	id := r.PathValue("instance_id")
	if id == "" || len(id) > osb.MaxIDLength || !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) {
		return "", osb.NotFound("there is no such service instance")
	}
	// A disconnected client must not interrupt the transaction.
	return b.Expire(context.WithoutCancel(r.Context()),
		osb.Call{ID: rand.Text(), Principal: principal, UserAgent: r.UserAgent()}, id)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A disconnected client is not an error.
	_ = json.NewEncoder(w).Encode(body)
}
