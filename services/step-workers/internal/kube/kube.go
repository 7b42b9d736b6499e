// Package kube calls a Kubernetes API with client-go's dynamic client.
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

// The resources that the steps use.
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

// Config is the connection to one of our own clusters.
type Config struct {
	// Kubeconfig is the path of a kubeconfig file. It takes precedence over URL and Token.
	Kubeconfig string
	URL        string
	// Token is a bearer token; empty means none.
	Token string
	// Timeout is the timeout of one call; default 30 s.
	Timeout time.Duration
}

// Client calls one cluster. It is safe for concurrent use.
type Client struct {
	system string
	dyn    dynamic.Interface
	close  func()
}

// Open creates a client of one of our own clusters; system is its name in errors and metrics. Open calls no system.
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
		return nil, fmt.Errorf("kubeconfig of %s: invalid", system)
	}
	return build(system, rc, cfg.Timeout, deps)
}

// ErrKubeconfig is the error of an invalid kubeconfig. Its text contains nothing of the kubeconfig.
var ErrKubeconfig = errors.New("kubeconfig cannot be used")

// FromKubeconfig creates a client from a kubeconfig of another system. It rejects a kubeconfig that would start a program or
// read a local file. The caller closes the client.
func FromKubeconfig(system string, data []byte, timeout time.Duration, deps extclient.Deps) (*Client, error) {
	raw, err := clientcmd.Load(data)
	if err != nil {
		// The decoder's errors contain its input.
		return nil, fmt.Errorf("%w: not a kubeconfig", ErrKubeconfig)
	}
	for _, u := range raw.AuthInfos {
		switch {
		case u.Exec != nil:
			return nil, fmt.Errorf("%w: users with exec are not allowed", ErrKubeconfig)
		case u.AuthProvider != nil:
			return nil, fmt.Errorf("%w: users with auth-provider are not allowed", ErrKubeconfig)
		case u.TokenFile != "" || u.ClientCertificate != "" || u.ClientKey != "":
			return nil, fmt.Errorf("%w: users with file names are not allowed, put the data into the kubeconfig", ErrKubeconfig)
		}
	}
	for _, c := range raw.Clusters {
		if c.CertificateAuthority != "" {
			return nil, fmt.Errorf("%w: clusters with file names are not allowed, put the data into the kubeconfig", ErrKubeconfig)
		}
	}
	rc, err := clientcmd.NewDefaultClientConfig(*raw, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%w: it has no usable current context", ErrKubeconfig)
	}
	// The library ignores the user of a server without TLS, such as a simulated one.
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

// build creates a client with its own transport. client-go would keep its own transports forever, one per cluster.
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
			BearerToken: rc.BearerToken, Impersonate: rc.Impersonate, Transport: limited{extclient.Trace(system, route, measured)},
		}
	} else {
		rc.Wrap(func(next http.RoundTripper) http.RoundTripper { return limited{extclient.Trace(system, route, next)} })
	}
	rc.Timeout = timeout
	// The worker limits its concurrency; a second limit here would only use up the timeouts of the calls.
	rc.QPS = -1
	rc.WarningHandler = rest.NoWarnings{}
	dyn, err := dynamic.NewForConfig(rc)
	if err != nil {
		return nil, err
	}
	return &Client{system: system, dyn: dyn, close: closeIdle}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.close() }

func (c *Client) in(r schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.dyn.Resource(r)
	}
	return c.dyn.Resource(r).Namespace(namespace)
}

// Get returns an object.
func (c *Client) Get(ctx context.Context, r schema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	obj, err := c.in(r, namespace).Get(ctx, name, metav1.GetOptions{})
	return obj, c.wrap("get", r.Resource, name, err)
}

// List returns all objects that match a label selector; an empty namespace means all namespaces.
func (c *Client) List(ctx context.Context, r schema.GroupVersionResource, namespace, selector string) ([]unstructured.Unstructured, error) {
	list, err := c.in(r, namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, c.wrap("list", r.Resource, "", err)
	}
	return list.Items, nil
}

// pageSize is the number of objects in one answer to Each. A page of large objects must be shorter than maxAnswer.
const pageSize = 250

// Each calls f for all objects that match a label selector. It reads them page by page, from one state of the cluster, so that many large
// objects need little memory.
func (c *Client) Each(ctx context.Context, r schema.GroupVersionResource, namespace, selector string, f func(unstructured.Unstructured)) error {
	options := metav1.ListOptions{LabelSelector: selector, Limit: pageSize}
	for {
		list, err := c.in(r, namespace).List(ctx, options)
		if err != nil {
			return c.wrap("list", r.Resource, "", err)
		}
		for _, object := range list.Items {
			f(object)
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

// First returns at most n of the objects that match a label selector.
func (c *Client) First(ctx context.Context, r schema.GroupVersionResource, namespace, selector string, n int64) ([]unstructured.Unstructured, error) {
	list, err := c.in(r, namespace).List(ctx, metav1.ListOptions{LabelSelector: selector, Limit: n})
	if err != nil {
		return nil, c.wrap("list", r.Resource, "", err)
	}
	return list.Items, nil
}

// Create creates an object; an existing object is a conflict.
func (c *Client) Create(ctx context.Context, r schema.GroupVersionResource, obj *unstructured.Unstructured) error {
	_, err := c.in(r, obj.GetNamespace()).Create(ctx, obj, metav1.CreateOptions{})
	return c.wrap("create", r.Resource, obj.GetName(), err)
}

// Update replaces an object; a change by another client since it was read is a conflict.
func (c *Client) Update(ctx context.Context, r schema.GroupVersionResource, obj *unstructured.Unstructured) error {
	_, err := c.in(r, obj.GetNamespace()).Update(ctx, obj, metav1.UpdateOptions{})
	return c.wrap("update", r.Resource, obj.GetName(), err)
}

// Patch applies a JSON merge patch to an object.
func (c *Client) Patch(ctx context.Context, r schema.GroupVersionResource, namespace, name string, patch []byte) error {
	_, err := c.Merge(ctx, r, namespace, name, patch)
	return err
}

// Merge applies a JSON merge patch to an object and returns the result. A patch with a resourceVersion is a conflict if another
// client has changed the object since.
func (c *Client) Merge(ctx context.Context, r schema.GroupVersionResource, namespace, name string, patch []byte) (*unstructured.Unstructured, error) {
	obj, err := c.in(r, namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return obj, c.wrap("patch", r.Resource, name, err)
}

// Delete deletes an object. A missing object is no error.
func (c *Client) Delete(ctx context.Context, r schema.GroupVersionResource, namespace, name string) error {
	err := c.wrap("delete", r.Resource, name, c.in(r, namespace).Delete(ctx, name, metav1.DeleteOptions{}))
	if IsNotFound(err) {
		return nil
	}
	return err
}

// Apply gives an object the labels, annotations and top-level fields of want. It creates a missing object, and sends no update without
// a change.
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

// Turn is Apply for an object that was read before. A change by another client since then is a conflict.
func (c *Client) Turn(ctx context.Context, r schema.GroupVersionResource, have, want *unstructured.Unstructured) error {
	if !merge(have, want) {
		return nil
	}
	return c.Update(ctx, r, have)
}
