// Package controller reconciles the BtpOperators in a cluster. It determines the events, looks up their transitions in package machine,
// and performs the actions with other packages.
package controller

import (
	"context"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/services/btp-manager/api/v1alpha1"
	"github.com/kyma-project/keb/services/btp-manager/internal/certs"
	"github.com/kyma-project/keb/services/btp-manager/internal/config"
	"github.com/kyma-project/keb/services/btp-manager/internal/credentials"
	"github.com/kyma-project/keb/services/btp-manager/internal/metric"
	"github.com/kyma-project/keb/services/btp-manager/internal/operand"
	"github.com/kyma-project/keb/services/btp-manager/internal/render"
	"github.com/kyma-project/keb/services/btp-manager/internal/services"
)

// Chart renders the objects of the operand.
type Chart interface {
	Version() string
	Render(release render.Release, values map[string]any) ([]*unstructured.Unstructured, error)
}

// Objects applies and removes the objects of the operand.
type Objects interface {
	Apply(ctx context.Context, objects []*unstructured.Unstructured) (operand.Applied, error)
	Unready(ctx context.Context, objects []*unstructured.Unstructured) ([]operand.NotReady, error)
	Remove(ctx context.Context, objects []*unstructured.Unstructured, keep func(operand.Ref) bool) ([]operand.NotReady, error)
	RemoveWorkload(ctx context.Context) error
}

// Services counts and deletes the service instances and bindings in the cluster.
type Services interface {
	Count(ctx context.Context) (services.Left, error)
	HardDelete(ctx context.Context) (services.Left, error)
	SoftDelete(ctx context.Context) (services.Left, error)
}

// Certificates maintains the certificates of the operand's webhooks.
type Certificates interface {
	Ensure(ctx context.Context) (certs.Result, error)
}

// Deps are the dependencies of a Reconciler. All fields are required.
type Deps struct {
	// Client reads without a cache, so that each pass sees the current state.
	Client  client.Client
	Chart   Chart
	Objects Objects
	// Services and Certificates return implementations for the current settings.
	Services     func(config.Config) Services
	Certificates func(config.Config) Certificates
	Settings     *Settings
	Recorder     events.EventRecorder
	Metrics      *metric.Metrics
	// Image is the operand's image; empty means that of the chart.
	Image string
	Now   func() time.Time
}

// Reconciler reconciles BtpOperators, one at a time. Package app connects its events.
type Reconciler struct {
	deps Deps
	// troubledSince is the time since which the operand of a Ready BtpOperator cannot be checked, or since which conflicts last; zero if neither.
	troubledSince time.Time
}

// New creates a Reconciler.
func New(deps Deps) *Reconciler { return &Reconciler{deps: deps} }

// render renders the objects of the operand with credentials and the CA bundle of its webhooks.
func (p *pass) render(given credentials.Credentials, caBundle []byte) ([]*unstructured.Unstructured, error) {
	pullSecrets, ports := []any{}, []any{}
	for _, name := range p.cfg.PullSecrets() {
		pullSecrets = append(pullSecrets, map[string]any{"name": name})
	}
	for _, port := range p.cfg.EgressPorts() {
		ports = append(ports, port)
	}
	values := map[string]any{
		"manager": map[string]any{
			"enable_limited_cache": p.cfg.EnableLimitedCache,
			"imagePullSecrets":     pullSecrets,
			"certificates":         map[string]any{"caBundle": string(caBundle)},
		},
		"networkPolicies": map[string]any{
			"enabled":     !strings.EqualFold(p.cr.Annotations[v1alpha1.DisableNetworkPoliciesAnnotation], "true"),
			"egressPorts": ports,
		},
	}
	merge(values, ImageValues(p.deps.Image))
	merge(values, given.Values())
	return p.deps.Chart.Render(p.release(), values)
}

func (p *pass) release() render.Release {
	return render.Release{Name: releaseName, Namespace: p.cfg.ChartNamespace}
}

// releaseName is the name of the chart's release. It does not depend on the leading BtpOperator, so that another leader can take over the
// objects.
const releaseName = "sap-btp-operator"

// merge merges the values of b into a, at any depth.
func merge(a, b map[string]any) {
	for key, value := range b {
		under, ok := value.(map[string]any)
		if over, both := a[key].(map[string]any); ok && both {
			merge(over, under)
			continue
		}
		if ok {
			value = maps.Clone(under)
		}
		a[key] = value
	}
}

// ImageValues splits the reference of an image into the chart's values. It sets all of them, because the chart's tag does not apply to another
// image. An empty reference has no values, so that the chart's image applies.
func ImageValues(reference string) map[string]any {
	if reference == "" {
		return nil
	}
	rest, digest, _ := strings.Cut(reference, "@")
	repository, tag := rest, ""
	if i := strings.LastIndex(rest, ":"); i > strings.LastIndex(rest, "/") { // what else has a colon is the registry's port
		repository, tag = rest[:i], rest[i+1:]
	}
	return map[string]any{"manager": map[string]any{
		"image": map[string]any{"repository": repository, "tag": tag, "sha": strings.TrimPrefix(digest, "sha256:")},
	}}
}
