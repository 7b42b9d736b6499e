package services

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// maxErrors is how many errors of a kind a pass reports; the others are counted.
const maxErrors = 5

// RefusedError tells that the Kubernetes API understood a request and said no: an admission webhook or policy denied it, it is
// forbidden or invalid. To ask again does not help.
type RefusedError struct {
	// Count is how many requests were refused.
	Count int
	// Err are the first refusals.
	Err error
}

// Error names the first refusals.
func (e *RefusedError) Error() string { return fmt.Sprintf("%d requests refused: %v", e.Count, e.Err) }

// Unwrap returns the first refusals.
func (e *RefusedError) Unwrap() error { return e.Err }

// absent reports whether an object, or its whole kind, does not exist.
func absent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// delayed reports whether a request did not get through now and may later.
func delayed(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) {
		return true
	}
	_, noAnswer := errors.AsType[*url.Error](err)
	return noAnswer
}

// refused reports whether the API said no. An unknown identity is not a no to this request.
func refused(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || delayed(err) {
		return false
	}
	code := int(status.ErrStatus.Code)
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusUnauthorized
}

// tally collects what went wrong in a pass. Several goroutines may add to it.
type tally struct {
	mu                       sync.Mutex
	refused, failed, delayed errs
}

type errs struct {
	count int
	first []error
}

func (e *errs) add(err error) {
	if e.count++; len(e.first) < maxErrors {
		e.first = append(e.first, err)
	}
}

// add keeps an error of the request that what names. That something is not there is none.
func (t *tally) add(what string, err error) {
	if err == nil || absent(err) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	wrapped := fmt.Errorf("%s: %w", what, err)
	switch {
	case delayed(err):
		t.delayed.add(wrapped)
	case refused(err):
		t.refused.add(wrapped)
	default:
		t.failed.add(wrapped)
	}
}

// result is the error of the pass. What was only delayed is logged: the next pass tries again.
func (t *tally) result(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if ctx.Err() != nil {
		return fmt.Errorf("delete service instances and bindings: %w", context.Cause(ctx))
	}
	if t.delayed.count > 0 {
		log.FromContext(ctx).Info("deletions of service instances and bindings are delayed", "requests", t.delayed.count, "err", t.delayed.first[0].Error())
	}
	var result []error
	if t.refused.count > 0 {
		result = append(result, &RefusedError{Count: t.refused.count, Err: errors.Join(t.refused.first...)})
	}
	if t.failed.count > 0 {
		result = append(result, fmt.Errorf("%d requests failed: %w", t.failed.count, errors.Join(t.failed.first...)))
	}
	return errors.Join(result...)
}
