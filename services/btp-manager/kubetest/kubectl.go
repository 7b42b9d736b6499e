package kubetest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubectlLimit is the timeout of one call of kubectl.
const kubectlLimit = 2 * time.Minute

// Kubectl runs kubectl with all rights and returns its output. If kubectl fails, so does the test.
func (c *Cluster) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := c.RunKubectl(t.Context(), KubectlCall{Args: args})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// KubectlCall is one call of kubectl.
type KubectlCall struct {
	// Args are the arguments.
	Args []string
	// Stdin is the standard input, for example for `apply -f -`.
	Stdin string
	// Kubeconfig is the file with the user; empty means a user with all rights. See Cluster.Kubeconfig.
	Kubeconfig string
}

// RunKubectl runs kubectl and returns its output. The error contains its error output.
func (c *Cluster) RunKubectl(ctx context.Context, call KubectlCall) (string, error) {
	if call.Kubeconfig == "" {
		admin, err := c.adminKubeconfig()
		if err != nil {
			return "", err
		}
		call.Kubeconfig = admin
	}
	ctx, cancel := context.WithTimeout(ctx, kubectlLimit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(folder(), "kubectl"), append([]string{"--kubeconfig", call.Kubeconfig}, call.Args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(call.Stdin), &stdout, &stderr
	// Ignore the cache and the preferences of the current user.
	cmd.Env = append(os.Environ(), "HOME="+c.dir, "KUBECONFIG=")
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(call.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Kubeconfig writes a kubeconfig file for a configuration, such as Cluster.Config or that of Cluster.As. The file is removed after the
// test.
func (c *Cluster) Kubeconfig(t testing.TB, cfg *rest.Config) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := writeKubeconfig(file, cfg); err != nil {
		t.Fatal(err)
	}
	return file
}

// adminKubeconfig returns a kubeconfig file with all rights. It is removed with the cluster.
func (c *Cluster) adminKubeconfig() (string, error) {
	file := filepath.Join(c.dir, "kubeconfig")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	return file, writeKubeconfig(file, c.Config)
}

func writeKubeconfig(file string, cfg *rest.Config) error {
	const name = "kubetest"
	k := clientcmdapi.NewConfig()
	k.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + strings.TrimPrefix(cfg.Host, "https://"), CertificateAuthorityData: cfg.CAData}
	k.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Token: cfg.BearerToken}
	k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	k.CurrentContext = name
	if err := clientcmd.WriteToFile(*k, file); err != nil {
		return fmt.Errorf("write a kubeconfig: %w", err)
	}
	return nil
}
