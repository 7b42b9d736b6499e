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

// maxErrors is the number of reported errors of a kind per pass; further errors are counted.
const maxErrors = 5

// RefusedError means that the Kubernetes API rejected changes: an admission webhook or policy denied them, or they are forbidden or
// invalid. A retry does not help.
type RefusedError struct {
	// Count is the number of rejected requests.
	Count int
	// Err joins the first rejections.
	Err error
}

// Error returns the first rejections.
func (e *RefusedError) Error() string { return fmt.Sprintf("%d requests refused: %v", e.Count, e.Err) }

// Unwrap returns the first rejections.
func (e *RefusedError) Unwrap() error { return e.Err }

// readError is a failed read. It never counts as a rejection: a rejected deletion has consequences, and a read has none.
type readError struct{ error }

// Unwrap returns the error of the read.
func (e readError) Unwrap() error { return e.error }

// absent reports whether an object, or its whole kind, does not exist.
func absent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// delayed reports whether a request failed temporarily.
func delayed(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) {
		return true
	}
	_, noAnswer := errors.AsType[*url.Error](err)
	return noAnswer
}

// refused reports whether the API rejected a change. A read and an unknown identity do not count.
func refused(err error) bool {
	_, read := errors.AsType[readError](err)
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || read || delayed(err) {
		return false
	}
	code := int(status.ErrStatus.Code)
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusUnauthorized
}

// tally collects the errors of a pass. It is safe for concurrent use.
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

// add adds an error of the request with the name what. It ignores a missing object.
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

// result returns the error of the pass. It logs temporary failures, because the next pass retries.
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
