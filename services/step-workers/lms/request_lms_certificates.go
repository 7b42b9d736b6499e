package lms

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"time"

	"github.com/kyma-project/keb/libs/worker"
)

// readyLimit is how long Request_LMS_Certificates waits for a tenant, counted from the first try, and for a certificate, counted from the
// request. It is no variable: the step's wait.timeout in the process file can shorten it.
const readyLimit = 30 * time.Minute

// requestCertificates waits for the tenant, gets the certificate of Fluent Bit, and sets its overrides.
func (s *shared) requestCertificates(ctx context.Context, op worker.Operation, log *slog.Logger) (worker.Operation, time.Duration, error) {
	d, err := read(op)
	if err != nil {
		return op, 0, err
	}
	if d.TenantID == "" {
		return worker.Skip(op, "the instance has no LMS tenant")
	}
	remembered, err := op.Recall(ctx, fluentBitKey)
	if errors.Is(err, worker.ErrNotRemembered) {
		return worker.Fail(op, &worker.Error{Component: "keb", Message: "no key for Fluent Bit: Create_LMS_Tenant has not run in this stage"})
	}
	if err != nil {
		return worker.Retry(op, s.errorInterval(), err)
	}
	c, err := decodeCredentials(remembered)
	if err != nil {
		return worker.Fail(op, &worker.Error{Err: err})
	}
	// A repeated stage has another key, for which an earlier certificate is useless.
	if d.Fingerprint != c.fingerprint() {
		ready, err := s.lms.ready(ctx, d.TenantID)
		if err != nil {
			return worker.Retry(op, s.errorInterval(), err)
		}
		if !ready {
			return s.wait(op, s.cfg.TenantInterval, op.FirstTriedAt, readyLimit, "the LMS tenant is not ready")
		}
		if d.CallbackURL, err = s.lms.request(ctx, d.TenantID, c.CSR); err != nil {
			return worker.Retry(op, s.errorInterval(), err)
		}
		d.Fingerprint, d.RequestedAt = c.fingerprint(), s.now()
		log.Info("certificate requested", "tenant_id", d.TenantID)
		own := Details{CallbackURL: d.CallbackURL, Fingerprint: d.Fingerprint, RequestedAt: d.RequestedAt}
		if err := op.SaveDetails(own); err != nil {
			return op, 0, err
		}
	}
	certificate, err := s.lms.certificate(ctx, d.CallbackURL)
	if err != nil {
		return worker.Retry(op, s.errorInterval(), err)
	}
	if certificate == "" {
		return s.wait(op, s.cfg.CertificateInterval, d.RequestedAt, readyLimit, "the certificate is not signed")
	}
	if !c.belongs(certificate) {
		return worker.Retry(op, s.errorInterval(), &worker.Error{Component: component, Message: "the certificate does not match the key of the request"})
	}
	authority, err := s.lms.authority(ctx, d.TenantID)
	if err != nil {
		return worker.Retry(op, s.errorInterval(), err)
	}
	dns, err := s.lms.dns(ctx, d.TenantID)
	if err != nil {
		return worker.Retry(op, s.errorInterval(), err)
	}
	op.SetOverrides(Component, fluentBit(dns, authority, certificate, c.Key, op.Context.SubaccountID))
	return op, 0, op.SaveDetails(Details{DNS: dns})
}

// fluentBit returns the overrides of docs/contracts/lms.md, none of which is marked as a secret. They configure Fluent Bit to send the
// logs of the runtime, with its subaccount, to a tenant.
func fluentBit(dns, authority, certificate, key, subaccount string) []worker.Override {
	encode := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	return []worker.Override{
		{Key: "fluent-bit.conf.Filter.Kubernetes.Merge_Log", Value: "Off"},
		{Key: "fluent-bit.conf.Input.Kubernetes.Exclude_Path", Value: "/var/log/containers/*_dex-*.log,/var/log/containers/*_kcproxy-*.log"},
		{Key: "fluent-bit.conf.Output.forward.enabled", Value: "true"},
		{Key: "fluent-bit.conf.Output.forward.Match", Value: "kube.*"},
		{Key: "fluent-bit.backend.forward.host", Value: "forward." + dns},
		{Key: "fluent-bit.backend.forward.port", Value: "8443"},
		{Key: "fluent-bit.backend.forward.tls.enabled", Value: "true"},
		{Key: "fluent-bit.backend.forward.tls.verify", Value: "On"},
		{Key: "fluent-bit.backend.forward.tls.ca", Value: encode(authority)},
		{Key: "fluent-bit.backend.forward.tls.cert", Value: encode(certificate)},
		{Key: "fluent-bit.backend.forward.tls.key", Value: encode(key)},
		{Key: "fluent-bit.conf.Filter.record_modifier.enabled", Value: "true"},
		{Key: "fluent-bit.conf.Filter.record_modifier.Match", Value: "kube.*"},
		{Key: "fluent-bit.conf.Filter.record_modifier.Key", Value: "subaccount_id"},
		{Key: "fluent-bit.conf.Filter.record_modifier.Value", Value: subaccount},
	}
}
