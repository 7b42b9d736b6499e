// Package certs makes and renews the certificates of the operand's webhooks: a CA and a serving certificate, each in a Secret
// (docs/contracts/btp-manager.md#certificates). Everything is derived from the two Secrets, so it does not matter which manager
// looks, and when.
//
// A renewal keeps the webhooks working without a pause. For a while nobody can tell which of the two serving certificates the
// operand uses and which caBundle the API server has, so each fits each: the bundle holds the previous CA after the new one, and
// with the new serving certificate goes the new CA's certificate signed by the previous CA.
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

// The Secrets, and what they hold in PEM (docs/contracts/btp-manager.md#certificates).
const (
	CASecret      = "ca-server-cert"      //nolint:gosec // the name of a Secret is no secret
	ServingSecret = "webhook-server-cert" //nolint:gosec // the same

	// KeyCACert holds the CA that signs, then the previous one while that is still trusted.
	KeyCACert = "ca.crt"
	KeyCAKey  = "ca.key"
	// KeyCross holds the CA that signs as the previous one has signed it, while that is still trusted.
	KeyCross = "cross.crt"
)

// What Result.Regenerated names.
const (
	CA      = "ca"
	Serving = "serving"
)

// passes bounds how often Ensure begins anew because another manager wrote meanwhile. Each time at least one Secret is settled.
const passes = 5

// Config says what certificates there are to be.
type Config struct {
	// Namespace is where the Secrets and the webhooks' Service are.
	Namespace string
	// Service is the name of the webhooks' Service. The certificate is for <service>.<namespace> and the same with .svc.
	Service string
	// CALifetime and ServingLifetime are how long new certificates are valid. A serving certificate ends with its CA.
	CALifetime, ServingLifetime time.Duration
	// RenewBefore is how long before its end a certificate is renewed, and how long a previous CA stays trusted. At most half of
	// the lifetimes.
	RenewBefore time.Duration
	// Labels are those that the Secrets must have; others stay.
	Labels map[string]string
}

// validate refuses what would renew a certificate with every look at it.
func (c Config) validate() error {
	if c.Namespace == "" || c.Service == "" {
		return errors.New("no namespace or service")
	}
	if c.RenewBefore <= 0 || c.RenewBefore > c.CALifetime/2 || c.RenewBefore > c.ServingLifetime/2 {
		return fmt.Errorf("renewal %s before the end of certificates that are valid for %s and %s", c.RenewBefore, c.CALifetime, c.ServingLifetime)
	}
	return nil
}

// Deps is what Certs works with.
type Deps struct {
	// Client must read without a cache: what was written is read again at once.
	Client client.Client
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Certs looks after the certificates. It is safe for concurrent use.
type Certs struct {
	cfg  Config
	deps Deps
}

// New returns Certs for a configuration. It has no state: after a change of the settings make another.
func New(cfg Config, deps Deps) *Certs {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	return &Certs{cfg: cfg, deps: deps}
}

// Result is what the Secrets hold after Ensure.
type Result struct {
	// CABundle is what the webhooks' clients must trust, in PEM: certificates only, the one that signs first.
	CABundle []byte
	// CANotAfter and ServingNotAfter are when the certificates end.
	CANotAfter, ServingNotAfter time.Time
	// RenewAt is when Ensure has something to do next, if nobody touches the Secrets.
	RenewAt time.Time
	// Regenerated is what this call made: CA, Serving, both or neither.
	Regenerated []string
}

// Ensure makes the certificates what they have to be, and writes nothing when they are. A CA that is absent, broken or about to
// end is made anew, and the serving certificate with it; so are both when another CA signed the serving certificate. Otherwise
// a serving certificate that is absent, broken, for another service or about to end is made anew. When other managers kept
// writing, the error is a conflict of the API (apierrors.IsConflict, IsAlreadyExists).
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
		last = errors.New("somebody else keeps changing the Secrets")
	}
	return Result{}, fmt.Errorf("certificates of the webhooks: %w", last)
}

// pass reads both Secrets and writes what must be. It is done when nothing had to be: the result is then what the cluster had when
// it was read. Another manager, who had read a pair of two CAs before, may replace both after that; each hears of it by its watch.
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
	// The CA goes first: killed in between, the serving certificate is seen to be that of the previous CA, or of none.
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

// plan is what the Secrets have to hold.
type plan struct {
	ca      *authority
	serving map[string][]byte
	// leaf is the serving certificate that was found, if ca has signed it.
	leaf *x509.Certificate
	// caProblem and servingProblem are why a certificate is made anew; nil when it is not.
	caProblem, servingProblem error
}

// plan decides what stays and makes what does not.
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

// renew makes both certificates. An old CA in p that had only to be renewed stays trusted while its serving certificate is in use.
func (c *Certs) renew(p *plan, now time.Time) error {
	old := p.ca
	if p.leaf == nil {
		old = nil
	}
	var err error
	p.ca, err = newAuthority(old, c.cfg, now)
	if err != nil && old != nil {
		// A CA that is not of our making may have a key that cannot sign; the new one then follows nobody.
		p.ca, err = newAuthority(nil, c.cfg, now)
	}
	if err != nil {
		return err
	}
	p.servingProblem = errors.New("its CA is new")
	p.serving, err = newServing(p.ca, c.cfg, now)
	return err
}

// report notes and logs why a certificate was made; without a reason only labels or the previous CA were put right. Reasons say
// nothing of what a Secret holds beyond names and times.
func (c *Certs) report(ctx context.Context, made map[string]bool, what string, why error) {
	if why == nil {
		return
	}
	made[what] = true
	log.FromContext(ctx).Info("made a certificate of the webhooks", "certificate", what, "reason", why.Error())
}
