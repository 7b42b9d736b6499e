package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kyma-project/keb/services/btp-manager/internal/config"
	"github.com/kyma-project/keb/services/btp-manager/internal/metric"
)

// Settings are the flags overridden by the ConfigMap. An invalid ConfigMap changes nothing: the previous settings stay in force. Without a
// ConfigMap the flags apply. They also apply after a start with an invalid ConfigMap, because the previous settings are not stored.
type Settings struct {
	flags    config.Config
	client   client.Client
	recorder events.EventRecorder
	metrics  *metric.Metrics

	mu      sync.Mutex
	current config.Config
	known   bool    // whether a valid ConfigMap, or none, was read
	seen    version // of the ConfigMap that was read last, so that each is reported once
}

type version struct {
	uid     types.UID
	version string
}

// NewSettings returns the settings of the flags. The client must read without a cache.
func NewSettings(flags config.Config, c client.Client, recorder events.EventRecorder, metrics *metric.Metrics) *Settings {
	return &Settings{flags: flags, current: flags, client: c, recorder: recorder, metrics: metrics}
}

// Reconcile implements reconcile.Reconciler for the ConfigMap.
func (s *Settings) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	_, _, err := s.Read(ctx)
	return reconcile.Result{}, err
}

// Read reads the ConfigMap and returns the current settings. rejected is not nil if an invalid ConfigMap is all that this process has read:
// the settings may then differ from those before its start. err is not nil only if the API fails.
func (s *Settings) Read(ctx context.Context) (cfg config.Config, rejected, err error) {
	var found corev1.ConfigMap
	key := client.ObjectKey{Namespace: s.flags.ChartNamespace, Name: s.flags.ConfigName}
	err = s.client.Get(ctx, key, &found)
	if err != nil && !apierrors.IsNotFound(err) {
		return config.Config{}, nil, fmt.Errorf("read the ConfigMap %s: %w", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.use(ctx, s.flags, version{})
		s.metrics.CustomConfig(false)
		s.metrics.ConfigRejected(false)
		return s.current, nil, nil
	}
	next, err := s.flags.With(found.Data)
	s.metrics.ConfigRejected(err != nil)
	read := version{found.UID, found.ResourceVersion}
	if err != nil {
		if s.seen != read {
			s.seen = read
			log.FromContext(ctx).Error(err, "settings refused, the previous ones stay in force", "config_map", key.String())
			s.recorder.Eventf(&found, nil, corev1.EventTypeWarning, "ConfigRejected", "ConfigRejected", "%s", clip(err.Error()))
		}
		if !s.known {
			rejected = fmt.Errorf("the ConfigMap %s is rejected: %w", key, err)
		}
		return s.current, rejected, nil
	}
	s.use(ctx, next, read)
	s.metrics.CustomConfig(true)
	return next, nil, nil
}

func (s *Settings) use(ctx context.Context, next config.Config, read version) {
	if changed := config.Diff(s.current, next); len(changed) > 0 {
		log.FromContext(ctx).Info("settings changed", "keys", strings.Join(changed, ","))
	}
	s.current, s.seen, s.known = next, read, true
}
