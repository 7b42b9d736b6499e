package reconciler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// UserAgent is the user agent of the Reconciler's connections to runtimes.
const UserAgent = "mothership-reconciler"

// connectTimeout is the timeout of a connection with a kubeconfig.
const connectTimeout = 10 * time.Second

// parse parses a kubeconfig. Its errors do not contain the kubeconfig, which is a secret.
func parse(kubeconfig string) (*rest.Config, error) {
	if strings.TrimSpace(kubeconfig) == "" {
		return nil, errors.New("it is empty")
	}
	raw, err := clientcmd.Load([]byte(kubeconfig))
	if err != nil {
		return nil, errors.New("it is not YAML of the right form")
	}
	current := raw.Contexts[raw.CurrentContext]
	if current == nil {
		return nil, errors.New("its current context is not in it")
	}
	cluster, user := raw.Clusters[current.Cluster], raw.AuthInfos[current.AuthInfo]
	if cluster == nil {
		return nil, errors.New("the cluster of the current context has no server")
	}
	if u, err := url.Parse(cluster.Server); err != nil || u.Host == "" {
		return nil, errors.New("the cluster of the current context has no server")
	}
	if user == nil || user.Token == "" && user.Username == "" && len(user.ClientCertificateData) == 0 {
		return nil, errors.New("the user of the current context has no credential")
	}
	return &rest.Config{
		Host: cluster.Server, BearerToken: user.Token, Username: user.Username, Password: user.Password,
		TLSClientConfig: rest.TLSClientConfig{
			Insecure: cluster.InsecureSkipTLSVerify, ServerName: cluster.TLSServerName, CAData: cluster.CertificateAuthorityData,
			CertData: user.ClientCertificateData, KeyData: user.ClientKeyData,
		},
	}, nil
}

// connect connects with a kubeconfig and requests the version of the cluster.
func connect(ctx context.Context, kubeconfig string) error {
	config, err := parse(kubeconfig)
	if err != nil {
		return err
	}
	secured, err := rest.TLSConfigFor(config)
	if err != nil {
		return errors.New("its certificates cannot be used")
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(config.Host, "/")+"/version", http.NoBody)
	if err != nil {
		return errors.New("the server is not a URL")
	}
	r.Header.Set("User-Agent", UserAgent)
	switch {
	case config.BearerToken != "":
		r.Header.Set("Authorization", "Bearer "+config.BearerToken)
	case config.Username != "":
		r.SetBasicAuth(config.Username, config.Password)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: secured, DisableKeepAlives: true, Proxy: http.ProxyFromEnvironment}}
	resp, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("the cluster cannot be reached: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody))
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the cluster answers %d", resp.StatusCode)
	}
	return nil
}
