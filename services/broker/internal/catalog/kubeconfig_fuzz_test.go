package catalog

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
)

const ownCluster = `
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://api.example.com"}}]
users: [{name: u, user: {token: CANARY-5b2e}}]
`

// An accepted kubeconfig can be used by a client and never refers to a program or a local file. With one context it is stored unchanged.
func FuzzKubeconfigOfAnOwnCluster(f *testing.F) {
	for _, seed := range []string{
		ownCluster, "", "a: [", "current-context: c\ncontexts: [{name: c}]",
		strings.Replace(ownCluster, "token: CANARY-5b2e", "tokenFile: /etc/passwd", 1),
		strings.Replace(ownCluster, "token: CANARY-5b2e", "exec: {command: sh, apiVersion: client.authentication.k8s.io/v1}", 1),
		strings.Replace(ownCluster, "https", "http", 1), strings.Replace(ownCluster, "token: CANARY-5b2e", "", 1),
		strings.Replace(ownCluster, "{name: c, context: {cluster: k, user: u}}", "{name: c, context: null}", 1),
		strings.Replace(ownCluster, "users: [", "users: [{name: v, user: {exec: {command: sh}}}, ", 1),
		strings.Replace(ownCluster, "{name: k, cluster: ", "{name: k, clusters: ", 1), `{"apiVersion":"v1","users":[null]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		plain, problem := decodeKubeconfig(base64.StdEncoding.EncodeToString(document))
		if problem != nil {
			text := problem.Error()
			if !strings.Contains(text, "/kubeconfig") || strings.Contains(text, "CANARY") || len(text) > 300 {
				t.Fatalf("the problem is %q", text)
			}
			return
		}
		cfg, err := clientcmd.Load(plain)
		require.NoError(t, err)
		if len(cfg.Contexts) != 1 || len(cfg.Clusters) != 1 || len(cfg.AuthInfos) != 1 {
			t.Fatalf("%q became %q", document, plain)
		}
		sent, err := clientcmd.Load(document)
		require.NoError(t, err)
		if len(sent.Contexts)+len(sent.Clusters)+len(sent.AuthInfos) == 3 && !bytes.Equal(plain, document) {
			t.Fatalf("%q became %q", document, plain)
		}
		current := cfg.Contexts[cfg.CurrentContext]
		user, cluster := cfg.AuthInfos[current.AuthInfo], cfg.Clusters[current.Cluster]
		if user.Exec != nil || user.AuthProvider != nil || user.TokenFile+user.ClientCertificate+user.ClientKey+cluster.CertificateAuthority != "" {
			t.Fatalf("accepted: %s", document)
		}
		if !strings.HasPrefix(strings.ToLower(cluster.Server), "https://") {
			t.Fatalf("accepted the server %q", cluster.Server)
		}
	})
}
