package catalog

import (
	"encoding/base64"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// maxKubeconfig is the maximum size of a decoded kubeconfig, in bytes. The Reconciler limits a whole request to 100,000 bytes.
const maxKubeconfig = 64 << 10

// decodeKubeconfig decodes the kubeconfig of an own cluster (docs/contracts/broker.md#requests) and removes everything that its
// current context does not use. It rejects a kubeconfig that would make a worker run a program or read a local file on the
// customer's behalf, and one that no client can use: the workers reject these too, but only after the order was accepted.
func decodeKubeconfig(encoded string) ([]byte, *Problem) {
	const at = "/kubeconfig"
	plain, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, problem(at, "must be base64-encoded (standard alphabet with padding)")
	}
	if len(plain) > maxKubeconfig {
		return nil, problem(at, "must be at most %d bytes when decoded", maxKubeconfig)
	}
	cfg, err := clientcmd.Load(plain)
	if err != nil {
		// The parser's error may quote the document.
		return nil, problem(at, "must be a kubeconfig in YAML or JSON")
	}
	current, ok := cfg.Contexts[cfg.CurrentContext]
	if !ok {
		return nil, problem(at, "must have a current-context that names one of its contexts")
	}
	cluster, ok := cfg.Clusters[current.Cluster]
	if !ok {
		return nil, problem(at, "must have the cluster that its current context names")
	}
	u, err := url.Parse(cluster.Server)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, problem(at, "must name the server of its cluster as an https URL")
	}
	user, ok := cfg.AuthInfos[current.AuthInfo]
	if !ok {
		return nil, problem(at, "must have the user that its current context names")
	}
	if p := checkReferences(cluster, user); p != nil {
		return nil, p
	}
	if len(cfg.Contexts)+len(cfg.Clusters)+len(cfg.AuthInfos) > 3 {
		if clientcmdapi.MinifyConfig(cfg) != nil {
			return nil, problem(at, "must have a current-context that names one of its contexts")
		}
		if plain, err = clientcmd.Write(*cfg); err != nil {
			return nil, problem(at, "must be a kubeconfig in YAML or JSON")
		}
	}
	return plain, checkUsable(cfg)
}

// checkUsable creates the client of a kubeconfig without calling its cluster.
func checkUsable(cfg *clientcmdapi.Config) *Problem {
	rc, err := clientcmd.NewDefaultClientConfig(*cfg, nil).ClientConfig()
	if err == nil {
		_, err = rest.TLSConfigFor(rc)
	}
	if err == nil {
		_, err = rest.HTTPWrappersForConfig(rc, http.DefaultTransport)
	}
	if err != nil {
		// The error may quote the document.
		return problem("/kubeconfig", "must have a valid cluster and one valid way to log on: check the certificates, the key, and that there "+
			"is either a token or a user name")
	}
	return nil
}

func checkReferences(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) *Problem {
	const at = "/kubeconfig"
	switch {
	case u.Exec != nil || u.AuthProvider != nil:
		return problem(at, "must hold credentials itself: exec and auth-provider are not allowed")
	case u.TokenFile != "" || u.ClientCertificate != "" || u.ClientKey != "" || c.CertificateAuthority != "":
		return problem(at, "must hold its data itself: references to files are not allowed")
	case u.Token == "" && len(u.ClientCertificateData) == 0 && u.Username == "":
		return problem(at, "must hold a token, a client certificate, or a user name and password")
	}
	return nil
}
