// Package kubeconfig serves the kubeconfigs of runtimes to customers: GET /kubeconfig/{instance_id} (docs/contracts/broker.md#kubeconfig).
// The route needs no credentials: the kubeconfig contains no secret, only the user's login at the OpenID Connect provider.
package kubeconfig

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"unicode"
	"unicode/utf8"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kyma-project/keb/libs/api/broker"
	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/services/broker/internal/catalog"
	"github.com/kyma-project/keb/services/broker/internal/instance"
	"github.com/kyma-project/keb/services/broker/internal/store"
)

// Instances returns instances.
type Instances interface {
	Instance(ctx context.Context, id string) (*instance.Instance, error)
	Operation(ctx context.Context, id string) (*instance.Operation, error)
	RuntimeID(ctx context.Context, instanceID string) (string, error)
}

// Asker sends requests to the worker runtime.
type Asker interface {
	Ask(ctx context.Context, subject string, request, answer any) error
}

// Deps are the dependencies of a Handler.
type Deps struct {
	Instances Instances
	Asker     Asker
	Log       *slog.Logger
	// Origins are the origins whose pages may read kubeconfigs: "*", or a list, or none.
	Origins []string
}

// Handler serves kubeconfigs.
type Handler struct{ deps Deps }

// New creates a handler.
func New(deps Deps) *Handler { return &Handler{deps: deps} }

// Register adds the routes.
func (h *Handler) Register(mux *http.ServeMux) {
	mux.Handle("GET /kubeconfig/{instance_id}", h)
	mux.HandleFunc("GET /kubeconfig/{$}", func(w http.ResponseWriter, r *http.Request) {
		h.allow(w, r)
		refuse(w, &problem{http.StatusNotFound, "the path lacks an instance id"})
	})
}

// anyOrigin allows all origins.
const anyOrigin = "*"

// CheckOrigins rejects an entry that is neither a single "*" nor an origin such as https://dashboard.example.org.
func CheckOrigins(origins []string) error {
	if slices.Contains(origins, anyOrigin) && len(origins) > 1 {
		return errors.New(`"*" must be the only entry`)
	}
	for _, o := range origins {
		u, err := url.Parse(o)
		if o != anyOrigin && (err != nil || u.Scheme == "" || u.Host == "" || u.Scheme+"://"+u.Host != o) {
			return fmt.Errorf(`%q is not an origin such as https://dashboard.example.org`, o)
		}
	}
	return nil
}

// problem is an error response.
type problem struct {
	status int
	text   string
}

func (p *problem) Error() string { return p.text }

func missing(text string) error { return &problem{http.StatusNotFound, text} }

// ServeHTTP serves one kubeconfig.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.allow(w, r)
	id := r.PathValue("instance_id")
	body, err := h.kubeconfig(r.Context(), id)
	if err == nil {
		w.Header().Set("Content-Type", "application/x-yaml")
		w.Header().Set("Content-Disposition", "attachment; filename=kubeconfig.yaml")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		// The status is sent, so a write error cannot be reported to the client.
		_, _ = w.Write(body) //nolint:gosec // YAML that no browser shows as a page
		return
	}
	p, known := errors.AsType[*problem](err)
	if !known {
		p = &problem{http.StatusInternalServerError, "the kubeconfig could not be built"}
		if errors.Is(err, store.ErrUnavailable) {
			p = unavailable
		}
		h.deps.Log.Error("kubeconfig not built", "instance_id", id, "err", err)
	}
	refuse(w, p)
}

// allow allows pages of the configured origins to read the answer. The header takes one origin, so it is the client's.
func (h *Handler) allow(w http.ResponseWriter, r *http.Request) {
	const header = "Access-Control-Allow-Origin"
	if slices.Contains(h.deps.Origins, anyOrigin) {
		w.Header().Set(header, anyOrigin)
		return
	}
	w.Header().Add("Vary", "Origin")
	if origin := r.Header.Get("Origin"); slices.Contains(h.deps.Origins, origin) {
		w.Header().Set(header, origin)
	}
}

func refuse(w http.ResponseWriter, p *problem) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.status)
	_ = json.NewEncoder(w).Encode(broker.KubeconfigFailure{Error: p.text})
}

var unavailable = &problem{http.StatusServiceUnavailable, "a system that is needed cannot be reached: try again later"}

func (h *Handler) kubeconfig(ctx context.Context, id string) ([]byte, error) {
	if len(id) > osb.MaxIDLength || !utf8.ValidString(id) || slices.ContainsFunc([]rune(id), unicode.IsControl) {
		return nil, &problem{http.StatusBadRequest, "the path contains no valid instance id"}
	}
	i, err := h.deps.Instances.Instance(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, missing("there is no such service instance")
	}
	if err != nil {
		return nil, err
	}
	newest, err := h.deps.Instances.Operation(ctx, i.OperationID)
	if err != nil {
		return nil, err
	}
	if newest.InstanceID != id {
		return nil, &problem{http.StatusBadRequest, "the newest operation is not one on this service instance"}
	}
	if err := reachable(i, newest); err != nil {
		return nil, err
	}
	runtimeID, err := h.deps.Instances.RuntimeID(ctx, id)
	if err != nil {
		return nil, err
	}
	if runtimeID == "" {
		return nil, missing("the service instance has no runtime")
	}
	var cluster event.ClusterAnswer
	err = h.deps.Asker.Ask(ctx, event.AskCluster, event.RuntimeAccess{
		InstanceID: id, Account: i.Context.GlobalAccountID, RuntimeID: runtimeID,
	}, &cluster)
	if err != nil {
		h.deps.Log.Warn("the worker runtime did not return the address of a runtime", "instance_id", id, "err", err)
		return nil, unavailable
	}
	return build(i, cluster)
}

// reachable rejects an instance without a runtime that a user could log on to.
func reachable(i *instance.Instance, newest *instance.Operation) error {
	switch {
	case i.Plan.Name == catalog.OwnCluster:
		return missing("there is no kubeconfig for an own cluster")
	case !i.DeletedAt.IsZero(), newest.Type == event.Deprovision && !newest.Suspension:
		return missing("the service instance is deleted")
	case newest.Type == event.Deprovision:
		return missing("the service instance is suspended")
	case newest.Type == event.Provision && newest.State.Final() && newest.State != event.Succeeded:
		return missing("the provisioning of the service instance failed")
	case newest.Type == event.Provision && newest.State != event.Succeeded:
		return missing("the service instance is being provisioned")
	}
	return nil
}

// build returns the kubeconfig: the cluster, and a user with the kubectl plugin oidc-login.
func build(i *instance.Instance, cluster event.ClusterAnswer) ([]byte, error) {
	var parameters struct {
		OIDC catalog.OIDC `json:"oidc"`
	}
	if err := json.Unmarshal(i.Effective, &parameters); err != nil {
		return nil, fmt.Errorf("read parameters: %w", err)
	}
	if parameters.OIDC.IssuerURL == "" || parameters.OIDC.ClientID == "" {
		return nil, errors.New("the parameters of the instance name no OpenID Connect provider")
	}
	ca, err := base64.StdEncoding.DecodeString(cluster.CAData)
	if err != nil || cluster.Server == "" {
		return nil, errors.New("the answer of the worker runtime contains no usable cluster")
	}
	name := i.Runtime.ShootName
	if name == "" {
		name = i.ID
	}
	out, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: name,
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: cluster.Server, CertificateAuthorityData: ca}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {Exec: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1beta1",
			Command:    "kubectl",
			Args: []string{
				"oidc-login", "get-token", "--oidc-issuer-url=" + parameters.OIDC.IssuerURL, "--oidc-client-id=" + parameters.OIDC.ClientID,
				"--oidc-extra-scope=email", "--oidc-extra-scope=openid",
			},
			InteractiveMode: clientcmdapi.IfAvailableExecInteractiveMode,
			InstallHint:     "kubelogin is needed to log on: kubectl krew install oidc-login",
		}}},
	})
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig: %w", err)
	}
	return out, nil
}
