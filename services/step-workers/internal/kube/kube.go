// Package kube reaches a Kubernetes API with client-go's dynamic client.
package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/keb/libs/extclient"
)

// The kinds that the steps work with.
var (
	Namespaces       = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	Secrets          = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	ConfigMaps       = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	Kymas            = schema.GroupVersionResource{Group: "operator.kyma-project.io", Version: "v1beta2", Resource: "kymas"}
	SecretBindings   = schema.GroupVersionResource{Group: "core.gardener.cloud", Version: "v1beta1", Resource: "secretbindings"}
	Shoots           = schema.GroupVersionResource{Group: "core.gardener.cloud", Version: "v1beta1", Resource: "shoots"}
	ServiceInstances = schema.GroupVersionResource{Group: "services.cloud.sap.com", Version: "v1", Resource: "serviceinstances"}
	ServiceBindings  = schema.GroupVersionResource{Group: "services.cloud.sap.com", Version: "v1", Resource: "servicebindings"}
)

// Config says where a cluster of our own is.
type Config struct {
	// Kubeconfig is the path of a kubeconfig file; when it is set, URL and Token are not used.
	Kubeconfig string
	URL        string
	// Token is a bearer token; empty means none.
	Token string
	// Timeout is the deadline of one call; default 30 s.
	Timeout time.Duration
}

// Client calls one cluster. It is safe for use by several goroutines.
type Client struct {
	system string
	dyn    dynamic.Interface
	close  func()
}

// Open builds a client of a cluster of our own; system names it in errors and metrics. It calls nobody.
func Open(system string, cfg Config, deps extclient.Deps) (*Client, error) {
	if cfg.Kubeconfig == "" {
		if err := extclient.CheckURL("URL of "+system, cfg.URL); err != nil {
			return nil, err
		}
		return build(system, &rest.Config{Host: cfg.URL, BearerToken: cfg.Token}, cfg.Timeout, deps)
	}
	data, err := os.ReadFile(cfg.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of %s: %w", system, err)
	}
	rc, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of %s: not readable", system)
	}
	return build(system, rc, cfg.Timeout, deps)
}

// ErrKubeconfig tells that a kubeconfig cannot be used; its text never holds any of it.
var ErrKubeconfig = errors.New("kubeconfig cannot be used")

// FromKubeconfig builds a client from a kubeconfig that came from outside. Anything in it that would start a program
// or read a file here is refused. The caller closes the client.
func FromKubeconfig(system string, data []byte, timeout time.Duration, deps extclient.Deps) (*Client, error) {
	raw, err := clientcmd.Load(data)
	if err != nil {
		// The decoder repeats its input in its errors.
		return nil, fmt.Errorf("%w: not a kubeconfig", ErrKubeconfig)
	}
	for _, u := range raw.AuthInfos {
		switch {
		case u.Exec != nil:
			return nil, fmt.Errorf("%w: users with exec are not allowed", ErrKubeconfig)
		case u.AuthProvider != nil:
			return nil, fmt.Errorf("%w: users with auth-provider are not allowed", ErrKubeconfig)
		case u.TokenFile != "" || u.ClientCertificate != "" || u.ClientKey != "":
			return nil, fmt.Errorf("%w: users that name files are not allowed, put the data into the kubeconfig", ErrKubeconfig)
		}
	}
	for _, c := range raw.Clusters {
		if c.CertificateAuthority != "" {
			return nil, fmt.Errorf("%w: clusters that name files are not allowed, put the data into the kubeconfig", ErrKubeconfig)
		}
	}
	rc, err := clientcmd.NewDefaultClientConfig(*raw, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%w: it has no usable current context", ErrKubeconfig)
	}
	// The library leaves the user out when the server is not reached by TLS, as simulated ones are not.
	if current := raw.Contexts[raw.CurrentContext]; current != nil && !rest.IsConfigTransportTLS(*rc) {
		if u := raw.AuthInfos[current.AuthInfo]; u != nil {
			rc.BearerToken, rc.Username, rc.Password = u.Token, u.Username, u.Password
		}
	}
	c, err := build(system, rc, timeout, deps)
	if err != nil {
		return nil, fmt.Errorf("%w: its cluster or user is invalid", ErrKubeconfig)
	}
	return c, nil
}

// build gives each client a transport of its own: client-go keeps those it makes for ever, one per cluster.
func build(system string, rc *rest.Config, timeout time.Duration, deps extclient.Deps) (*Client, error) {
	if timeout <= 0 {
		timeout = 30 * time.Second
	}
	own := rc.ExecProvider == nil && rc.AuthProvider == nil && rc.BearerTokenFile == ""
	closeIdle := func() {}
	if own {
		tlsConfig, err := rest.TLSConfigFor(rc)
		if err != nil {
			return nil, err
		}
		transport := &http.Transport{
			TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true, Proxy: http.ProxyFromEnvironment,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: 32, IdleConnTimeout: 90 * time.Second,
		}
		closeIdle = transport.CloseIdleConnections
		measured, err := extclient.Measure(system, deps.Registerer, transport)
		if err != nil {
			return nil, err
		}
		rc = &rest.Config{
			Host: rc.Host, APIPath: rc.APIPath, Username: rc.Username, Password: rc.Password,
			BearerToken: rc.BearerToken, Impersonate: rc.Impersonate, Transport: extclient.Trace(system, route, measured),
		}
	} else {
		rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return extclient.Trace(system, route, next) })
	}
	rc.Timeout = timeout
	// The worker limits what runs at once; a second limit in here would only queue inside a deadline.
	rc.QPS = -1
	rc.WarningHandler = rest.NoWarnings{}
	dyn, err := dynamic.NewForConfig(rc)
	if err != nil {
		return nil, err
	}
	return &Client{system: system, dyn: dyn, close: closeIdle}, nil
}

// Close lets go of idle connections.
func (c *Client) Close() { c.close() }

func (c *Client) in(r schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.dyn.Resource(r)
	}
	return c.dyn.Resource(r).Namespace(namespace)
}

// Get reads one object.
func (c *Client) Get(ctx context.Context, r schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	obj, err := c.in(r, namespace).Get(ctx, name, metav1.GetOptions{})
	return obj, c.wrap("get", r.Resource, name, err)
}

// List reads all objects that a label selector selects; an empty namespace means all.
func (c *Client) List(ctx context.Context, r schema.GroupVersionResource, namespace, selector string) ([]unstructured.Unstructured, error) {
	list, err := c.in(r, namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, c.wrap("list", r.Resource, "", err)
	}
	return list.Items, nil
}

// First reads at most n of the objects that a label selector selects.
func (c *Client) First(ctx context.Context, r schema.GroupVersionResource, namespace, selector string, n int64) ([]unstructured.Unstructured, error) {
	list, err := c.in(r, namespace).List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: n})
	if err != nil {
		return nil, c.wrap("list", r.Resource, "", err)
	}
	return list.Items, nil
}

// Create creates an object; one that exists is a conflict.
func (c *Client) Create(ctx context.Context, r schema.GroupVersionResource, obj *unstructured.Unstructured) error {
	_, err := c.in(r, obj.GetNamespace()).Create(ctx, obj, metav1.CreateOptions{})
	return c.wrap("create", r.Resource, obj.GetName(), err)
}

// Update replaces an object; a change by somebody else since it was read is a conflict.
func (c *Client) Update(ctx context.Context, r schema.GroupVersionResource, obj *unstructured.Unstructured) error {
	_, err := c.in(r, obj.GetNamespace()).Update(ctx, obj, metav1.UpdateOptions{})
	return c.wrap("update", r.Resource, obj.GetName(), err)
}

// Patch merges a JSON merge patch into an object.
func (c *Client) Patch(ctx context.Context, r schema.GroupVersionResource, namespace, name string, patch []byte) error {
	_, err := c.Merge(ctx, r, namespace, name, patch)
	return err
}

// Merge merges a JSON merge patch into an object and returns what it has become. A patch that names a resourceVersion is a
// conflict when somebody else has changed the object since.
func (c *Client) Merge(ctx context.Context, r schema.GroupVersionResource, namespace, name string, patch []byte) (*unstructured.Unstructured, error) {
	obj, err := c.in(r, namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return obj, c.wrap("patch", r.Resource, name, err)
}

// Delete deletes an object; one that is gone is no error.
func (c *Client) Delete(ctx context.Context, r schema.GroupVersionResource, namespace, name string) error {
	err := c.wrap("delete", r.Resource, name, c.in(r, namespace).Delete(ctx, name, metav1.DeleteOptions{}))
	if IsNotFound(err) {
		return nil
	}
	return err
}

// Apply makes an object have the labels, annotations and the given top-level fields of want; it creates it when it is
// missing, and changes nothing when it already is so.
func (c *Client) Apply(ctx context.Context, r schema.GroupVersionResource, want *unstructured.Unstructured) error {
	have, err := c.Get(ctx, r, want.GetNamespace(), want.GetName())
	if IsNotFound(err) {
		return c.Create(ctx, r, want)
	}
	if err != nil {
		return err
	}
	return c.Turn(ctx, r, have, want)
}

// Turn is Apply for an object that was read: have becomes want. A change by somebody else since then is a conflict.
func (c *Client) Turn(ctx context.Context, r schema.GroupVersionResource, have, want *unstructured.Unstructured) error {
	if !merge(have, want) {
		return nil
	}
	return c.Update(ctx, r, have)
}
