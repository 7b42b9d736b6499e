package e2e_test

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/keb/services/btp-manager/kubetest"
)

const (
	webhookService = "sap-btp-operator-webhook-service"
	servingSecret  = "webhook-server-cert"
)

// network connects a kube-apiserver with the pods of its cluster. It ends at a simulator of the operand's webhooks, which accepts every
// request.
type network struct {
	dir     string
	cluster *kubetest.Cluster
	proxy   *http.Server
	webhook *http.Server
	conns   *handedOver
	servers sync.WaitGroup
	client  func() (client.Client, error)

	mu    sync.Mutex
	asked []string
}

// option makes a kube-apiserver use the network, and starts the network.
func (n *network) option(c *kubetest.Cluster) error {
	var err error
	// The path of a socket must be short, and that of a test's folder may be long.
	if n.dir, err = os.MkdirTemp("", "e2e-"); err != nil {
		return err
	}
	socket, file := filepath.Join(n.dir, "proxy"), filepath.Join(n.dir, "egress.yaml")
	content := fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: %s
`, socket)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		return err
	}
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	n.cluster = c
	// The cluster has an address once it runs.
	n.client = sync.OnceValues(func() (client.Client, error) { return client.New(c.Config, client.Options{}) })
	n.conns = &handedOver{conns: make(chan net.Conn), closed: make(chan struct{})}
	n.proxy = &http.Server{Handler: http.HandlerFunc(n.connect)}
	n.webhook = &http.Server{Handler: http.HandlerFunc(n.admit), TLSConfig: &tls.Config{GetCertificate: n.certificate}}
	n.servers.Go(func() { _ = n.proxy.Serve(ln) })
	n.servers.Go(func() { _ = n.webhook.ServeTLS(n.conns, "", "") })
	c.Environment.ControlPlane.GetAPIServer().Configure().Append("egress-selector-config-file", file)
	return nil
}

func (n *network) close() error {
	if n.proxy == nil {
		return nil
	}
	err := errors.Join(n.proxy.Close(), n.webhook.Close())
	n.servers.Wait()
	return errors.Join(err, os.RemoveAll(n.dir))
}

// connect allows the kube-apiserver to reach one address: that of the Service of the operand's webhooks.
func (n *network) connect(w http.ResponseWriter, r *http.Request) {
	c, err := n.client()
	service := new(corev1.Service)
	if err == nil {
		err = c.Get(r.Context(), client.ObjectKey{Namespace: kymaSystem, Name: webhookService}, service)
	}
	if err != nil || r.Method != http.MethodConnect || r.Host != net.JoinHostPort(service.Spec.ClusterIP, "443") {
		http.Error(w, fmt.Sprintf("no way to %s: %v", r.Host, err), http.StatusBadGateway)
		return
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if _, err := conn.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); err != nil {
		conn.Close()
		return
	}
	select {
	case n.conns.conns <- conn:
	case <-n.conns.closed:
		conn.Close()
	}
}

// certificate returns the certificate that the operand's pods would mount.
func (n *network) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	c, err := n.client()
	if err != nil {
		return nil, err
	}
	var s corev1.Secret
	if err := c.Get(hello.Context(), client.ObjectKey{Namespace: kymaSystem, Name: servingSecret}, &s); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(s.Data["tls.crt"], s.Data["tls.key"])
	return &pair, err
}

// admit accepts a request and records it.
func (n *network) admit(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, fmt.Sprintf("no review: %v", err), http.StatusBadRequest)
		return
	}
	n.mu.Lock()
	n.asked = append(n.asked, fmt.Sprintf("%s %s %s", r.URL.Path, review.Request.Operation, review.Request.Name))
	n.mu.Unlock()
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// wasAsked reports whether a webhook was called for a change: its path, the operation, the object's name.
func (n *network) wasAsked(path, operation, name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.asked, fmt.Sprintf("%s %s %s", path, operation, name))
}

// handedOver is a listener for existing connections.
type handedOver struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func (l *handedOver) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *handedOver) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *handedOver) Addr() net.Addr { return &net.UnixAddr{Name: "handed over", Net: "unix"} }
