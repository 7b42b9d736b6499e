package controller

import (
	"context"
	"errors"
	"net/url"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/machine"
)

// longest is the maximum length of a message of a condition or an event in bytes. The API server accepts 32 KiB, but people read them.
const longest = 1000

func clip(message string) string {
	if len(message) <= longest {
		return message
	}
	cut := longest
	for !utf8.RuneStart(message[cut]) {
		cut--
	}
	return message[:cut] + " ..."
}

// announce writes an event about a new state.
func (p *pass) announce(to machine.At, action, message string) {
	kind := corev1.EventTypeNormal
	if to.State == v1alpha1.StateError || to.State == v1alpha1.StateWarning || to.Reason == v1alpha1.ReasonSoftDeleting {
		kind = corev1.EventTypeWarning
	}
	p.deps.Recorder.Eventf(p.cr, nil, kind, string(to.Reason), action, "%s", clip(message))
}

// note writes an event without a new state.
func (p *pass) note(kind, reason, message string) {
	p.deps.Recorder.Eventf(p.cr, nil, kind, reason, reason, "%s", clip(message))
}

// temporary reports whether an error is probably temporary: the API is busy, restarting or unreachable, or another client was faster. If an
// error joins several, one permanent error makes it permanent.
func temporary(err error) bool {
	if err == nil {
		return false
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range many.Unwrap() {
			if !temporary(e) {
				return false
			}
		}
		return true
	}
	if _, noAnswer := err.(*url.Error); noAnswer { //nolint:errorlint // one that err wraps is come to below
		return true
	}
	if one := errors.Unwrap(err); one != nil {
		return temporary(one)
	}
	return apierrors.IsConflict(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) || apierrors.IsResourceExpired(err) ||
		apierrors.IsUnauthorized(err) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err)
}
