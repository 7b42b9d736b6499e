package services

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// firstRetry is the shortest pause between two attempts of Watch.
const firstRetry = 500 * time.Millisecond

// Watch calls changed when a service instance or binding was created or deleted, or may have been during an interruption. It also calls
// changed when the watch begins, and when the cluster stops serving a kind. It blocks until ctx ends and then returns nil. It waits for
// kinds that the cluster does not serve, and for an unavailable API. Calls of changed do not overlap.
func (s *Services) Watch(ctx context.Context, changed func()) error {
	cfg := rest.CopyConfig(s.deps.REST)
	// The API server limits the duration of a watch.
	cfg.Timeout = 0
	c, err := metadata.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("watch service instances and bindings: %w", err)
	}
	var (
		mu     sync.Mutex
		kinds  sync.WaitGroup
		report = func() {
			mu.Lock()
			defer mu.Unlock()
			changed()
		}
	)
	for _, k := range []kind{instance, binding} {
		kinds.Go(func() {
			w := &watcher{kind: k, s: s, resource: c.Resource(api.WithResource(k.resource)), changed: report}
			w.run(ctx)
		})
	}
	kinds.Wait()
	return nil
}

// watcher watches one kind.
type watcher struct {
	kind     kind
	s        *Services
	resource metadata.Getter
	changed  func()
	// known reports whether the cluster served the kind at the last check.
	known bool
}

// run watches repeatedly until ctx ends.
func (w *watcher) run(ctx context.Context) {
	pause, logged := firstRetry, ""
	for {
		lasted, err := w.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if lasted {
			pause, logged = firstRetry, ""
		}
		// Each error is logged once. A missing kind and the end of a watch are not errors.
		if err != nil && !absent(err) && !apierrors.IsResourceExpired(err) && err.Error() != logged {
			logged = err.Error()
			log.FromContext(ctx).Info("the watch of service instances and bindings is interrupted", "resource", w.kind.resource, "err", logged)
		}
		timer := time.NewTimer(min(pause, w.s.cfg.WatchRetry))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = min(2*pause, w.s.cfg.WatchRetry)
	}
}

// once watches the kind until the API server ends the watch. It reports whether that lasted longer than the longest pause.
func (w *watcher) once(ctx context.Context) (lasted bool, err error) {
	var now *metav1.PartialObjectMetadataList
	err = w.s.call(ctx, func(ctx context.Context) (err error) {
		// One object is sufficient to get the version from which to watch.
		now, err = w.resource.List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
	if absent(err) && w.known {
		w.known = false
		w.changed()
	}
	if err != nil {
		return false, err
	}
	events, err := w.resource.Watch(ctx, metav1.ListOptions{ResourceVersion: now.ResourceVersion})
	if err != nil {
		return false, err
	}
	defer events.Stop()
	w.known = true
	w.changed()
	long := time.NewTimer(w.s.cfg.WatchRetry)
	defer long.Stop()
	for {
		select {
		case <-ctx.Done():
			return lasted, nil
		case <-long.C:
			lasted = true
		case event, open := <-events.ResultChan():
			if !open {
				return lasted, nil
			}
			switch event.Type {
			case watch.Added, watch.Deleted:
				w.changed()
			case watch.Error:
				return lasted, apierrors.FromObject(event.Object)
			}
		}
	}
}
