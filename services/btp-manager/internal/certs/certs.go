// Package certs creates and renews the certificates of the operand's webhooks: a CA and a serving certificate, each in a Secret
// (docs/contracts/btp-manager.md#certificates). Everything is derived from the two Secrets, so any manager can do it at any
// time.
//
// The webhooks work without interruption during a renewal. For a while it is unknown which of the two serving certificates the
// operand uses and which caBundle the API server has, so each combination must be valid: the bundle contains the new CA and the
// previous one, and the new serving certificate is accompanied by the new CA's certificate signed by the previous CA.
package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// The Secrets and their keys in PEM (docs/contracts/btp-manager.md#certificates).
const (
	CASecret      = "ca-server-cert"      //nolint:gosec // the name of a Secret is no secret
	ServingSecret = "webhook-server-cert" //nolint:gosec // the same

	// KeyCACert contains the signing CA, followed by the previous one while that is trusted.
	KeyCACert = "ca.crt"
	KeyCAKey  = "ca.key"
	// KeyCross contains the signing CA's certificate signed by the previous CA, while that is trusted.
	KeyCross = "cross.crt"
)

// The values of Result.Regenerated.
const (
	CA      = "ca"
	Serving = "serving"
)

// passes is the maximum number of retries after writes by another manager. Each pass completes at least one Secret.
const passes = 5

// Config describes the certificates.
type Config struct {
	// Namespace is the namespace of the Secrets and of the webhooks' Service.
	Namespace string
	// Service is the name of the webhooks' Service. The certificate is valid for <service>.<namespace>, with and without the suffix .svc.
	Service string
	// CALifetime and ServingLifetime are the lifetimes of new certificates. A serving certificate expires no later than its CA.
	CALifetime, ServingLifetime time.Duration
	// RenewBefore is the time before its expiry at which a certificate is renewed, and how long a previous CA stays trusted. It is at most
	// half of the lifetimes.
	RenewBefore time.Duration
	// Labels are the required labels of the Secrets. Other labels stay.
	Labels map[string]string
}

// validate rejects a configuration that would renew a certificate in every pass.
func (c Config) validate() error {
	if c.Namespace == "" || c.Service == "" {
		return errors.New("no namespace or service")
	}
	if c.RenewBefore <= 0 || c.RenewBefore > c.CALifetime/2 || c.RenewBefore > c.ServingLifetime/2 {
		return fmt.Errorf("renewal %s before the end of certificates that are valid for %s and %s", c.RenewBefore, c.CALifetime, c.ServingLifetime)
	}
	return nil
}

// Deps are the dependencies of Certs.
type Deps struct {
	// Client must read without a cache, because Ensure reads what it has just written.
	Client client.Client
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Certs maintains the certificates. It is safe for concurrent use.
type Certs struct {
	cfg  Config
	deps Deps
}

// New creates a Certs. It has no state: create another one after a change of the settings.
func New(cfg Config, deps Deps) *Certs {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	return &Certs{cfg: cfg, deps: deps}
}

// Result describes the Secrets after Ensure.
type Result struct {
	// CABundle contains the certificates that the webhooks' clients must trust, in PEM, starting with the signing one.
	CABundle []byte
	// CANotAfter and ServingNotAfter are the expiry times.
	CANotAfter, ServingNotAfter time.Time
	// RenewAt is the time of the next renewal, if the Secrets are not changed.
	RenewAt time.Time
	// Regenerated lists the certificates that this call created: CA, Serving, both or none.
	Regenerated []string
}

// Ensure creates or renews the certificates if necessary. It replaces a CA that is missing, invalid or about to expire, together with the
// serving certificate; and both if another CA signed the serving certificate. Otherwise it replaces a serving certificate that is
// missing, invalid, for another service or about to expire. If other managers keep writing, the error is a conflict of the API
// (apierrors.IsConflict, IsAlreadyExists).
func (c *Certs) Ensure(ctx context.Context) (Result, error) {
	if err := c.cfg.validate(); err != nil {
		return Result{}, fmt.Errorf("certificates of the webhooks: %w", err)
	}
	made := make(map[string]bool)
	var last error
	for range passes {
		result, done, err := c.pass(ctx, made)
		switch {
		case err == nil && done:
			result.Regenerated = slices.Sorted(maps.Keys(made))
			return result, nil
		case err != nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err):
			return Result{}, fmt.Errorf("certificates of the webhooks: %w", err)
		}
		last = err
	}
	if last == nil {
		last = errors.New("another client keeps changing the Secrets")
	}
	return Result{}, fmt.Errorf("certificates of the webhooks: %w", last)
}

// pass reads both Secrets and writes the necessary changes. It is done if none were necessary: the result is then the state that it read.
// Another manager with outdated data may still replace both afterwards; its watch then triggers another pass.
func (c *Certs) pass(ctx context.Context, made map[string]bool) (Result, bool, error) {
	caSecret, err := c.read(ctx, CASecret)
	if err != nil {
		return Result{}, false, err
	}
	servingSecret, err := c.read(ctx, ServingSecret)
	if err != nil {
		return Result{}, false, err
	}
	p, err := c.plan(caSecret.Data, servingSecret.Data)
	if err != nil {
		return Result{}, false, err
	}
	wrote := false
	// The CA goes first: after a crash in between, the serving certificate is recognized as one of the previous CA, or of none.
	if c.differs(caSecret, p.ca.data()) {
		if err := c.write(ctx, caSecret, corev1.SecretTypeOpaque, p.ca.data()); err != nil {
			return Result{}, false, err
		}
		wrote = true
		c.report(ctx, made, CA, p.caProblem)
	}
	if c.differs(servingSecret, p.serving) {
		if err := c.write(ctx, servingSecret, corev1.SecretTypeTLS, p.serving); err != nil {
			return Result{}, false, err
		}
		wrote = true
		c.report(ctx, made, Serving, p.servingProblem)
	}
	if wrote {
		return Result{}, false, nil
	}
	return Result{
		CABundle:        p.ca.bundle(),
		CANotAfter:      p.ca.cert.NotAfter,
		ServingNotAfter: p.leaf.NotAfter,
		RenewAt:         p.ca.renewAt(p.leaf, c.cfg.RenewBefore),
	}, true, nil
}

// plan is the intended content of the Secrets.
type plan struct {
	ca      *authority
	serving map[string][]byte
	// leaf is the existing serving certificate, if ca has signed it.
	leaf *x509.Certificate
	// caProblem and servingProblem are the reasons for a new certificate; nil if there is none.
	caProblem, servingProblem error
}

// plan decides which certificates stay, and creates the others.
func (c *Certs) plan(caData, servingData map[string][]byte) (*plan, error) {
	now := c.deps.Now()
	p := &plan{serving: servingData}
	p.ca, p.caProblem = parseAuthority(caData, now, c.cfg.RenewBefore)
	if p.ca != nil {
		p.leaf, p.servingProblem = parseServing(servingData, p.ca, c.cfg, now)
	}
	if errors.Is(p.servingProblem, errForeign) {
		p.ca, p.caProblem = nil, errForeign
	}
	if p.caProblem == nil {
		if p.ca.overdue(now, c.cfg.RenewBefore) {
			p.ca = p.ca.withoutPrevious()
		}
		if p.servingProblem == nil {
			return p, nil
		}
		var err error
		if p.serving, err = newServing(p.ca, c.cfg, now); err == nil {
			return p, nil
		}
		p.ca, p.caProblem = nil, fmt.Errorf("it cannot be used: %w", err)
	}
	return p, c.renew(p, now)
}

// renew creates both certificates. A valid old CA in p stays trusted while its serving certificate is in use.
func (c *Certs) renew(p *plan, now time.Time) error {
	old := p.ca
	if p.leaf == nil {
		old = nil
	}
	var err error
	p.ca, err = newAuthority(old, c.cfg, now)
	if err != nil && old != nil {
		// The key of a CA from another source may not be able to sign. The new CA then has no predecessor.
		p.ca, err = newAuthority(nil, c.cfg, now)
	}
	if err != nil {
		return err
	}
	p.servingProblem = errors.New("its CA is new")
	p.serving, err = newServing(p.ca, c.cfg, now)
	return err
}

// report records and logs the reason for a new certificate. Without a reason, only labels or the previous CA were corrected. Reasons contain
// only names and times from a Secret.
func (c *Certs) report(ctx context.Context, made map[string]bool, what string, why error) {
	if why == nil {
		return
	}
	made[what] = true
	log.FromContext(ctx).Info("made a certificate of the webhooks", "certificate", what, "reason", why.Error())
}
