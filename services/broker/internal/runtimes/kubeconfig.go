package runtimes

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
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

// kubeconfig serves a kubeconfig to customers (docs/contracts/broker.md#kubeconfig). The route needs no credentials: the kubeconfig
// contains no secret, only the user's login at the OpenID Connect provider.
func (a *API) kubeconfig(w http.ResponseWriter, r *http.Request) {
	a.allow(w, r)
	id := r.PathValue("instance_id")
	body, err := a.kubeconfigOf(r.Context(), id)
	if err == nil {
		w.Header().Set("Content-Type", "application/x-yaml")
		w.Header().Set("Content-Disposition", "attachment; filename=kubeconfig.yaml")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		// The status is sent, so a write error cannot be reported to the client.
		_, _ = w.Write(body)
		return
	}
	p, known := errors.AsType[*problem](err)
	if !known {
		p = &problem{http.StatusInternalServerError, "the kubeconfig could not be built"}
		if errors.Is(err, store.ErrUnavailable) {
			p = unavailable
		}
		a.deps.Log.Error("kubeconfig not built", "instance_id", id, "err", err)
	}
	refuse(w, p)
}

// allow allows pages of the configured origins to read the answer. The header takes one origin, so it is the client's.
func (a *API) allow(w http.ResponseWriter, r *http.Request) {
	const header = "Access-Control-Allow-Origin"
	if slices.Contains(a.deps.Origins, anyOrigin) {
		w.Header().Set(header, anyOrigin)
		return
	}
	w.Header().Add("Vary", "Origin")
	if origin := r.Header.Get("Origin"); slices.Contains(a.deps.Origins, origin) {
		w.Header().Set(header, origin)
	}
}

func refuse(w http.ResponseWriter, p *problem) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(p.status)
	_ = json.NewEncoder(w).Encode(broker.KubeconfigFailure{Error: p.text})
}

var unavailable = &problem{http.StatusServiceUnavailable, "a system that is needed cannot be reached: try again later"}

func (a *API) kubeconfigOf(ctx context.Context, id string) ([]byte, error) {
	if id == "" {
		return nil, missing("the path lacks an instance id")
	}
	if len(id) > osb.MaxIDLength || !utf8.ValidString(id) || slices.ContainsFunc([]rune(id), unicode.IsControl) {
		return nil, &problem{http.StatusBadRequest, "the path contains no valid instance id"}
	}
	i, err := a.deps.Store.Instance(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, missing("there is no such service instance")
	}
	if err != nil {
		return nil, err
	}
	newest, err := a.deps.Store.Operation(ctx, i.OperationID)
	if err != nil {
		return nil, err
	}
	if newest.InstanceID != id {
		return nil, &problem{http.StatusBadRequest, "the newest operation is not one on this service instance"}
	}
	if err := reachable(i, newest); err != nil {
		return nil, err
	}
	runtimeID, err := a.deps.Store.RuntimeID(ctx, id)
	if err != nil {
		return nil, err
	}
	if runtimeID == "" {
		return nil, missing("the service instance has no runtime")
	}
	var cluster event.ClusterAnswer
	err = a.deps.Bus.Ask(ctx, event.AskCluster, event.RuntimeAccess{
		InstanceID: id, Account: i.Context.GlobalAccountID, RuntimeID: runtimeID,
	}, &cluster)
	if err != nil {
		a.deps.Log.Warn("the worker runtime did not return the address of a runtime", "instance_id", id, "err", err)
		return nil, unavailable
	}
	return buildKubeconfig(i, cluster)
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

// buildKubeconfig returns the kubeconfig: the cluster, and a user with the kubectl plugin oidc-login.
func buildKubeconfig(i *instance.Instance, cluster event.ClusterAnswer) ([]byte, error) {
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
