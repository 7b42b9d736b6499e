package broker_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/broker"
)

// download requests a kubeconfig without credentials, as customers do.
func (b *bench) download(path string, header ...string) answer {
	b.t.Helper()
	return b.send(http.MethodGet, "/kubeconfig/"+path, nil, append(header, "Authorization", "")...)
}

func TestKubeconfig_Provisioned_ContainsLogin(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	newRuntimes(b)
	o := order(azure)
	o["parameters"] = map[string]any{"name": "sample", "oidc": map[string]any{
		"clientID": "my-client", "issuerURL": "https://issuer.example.org/: {}\"",
	}}
	b.ended("i", b.accepted(b.put("i", o)), "succeeded")
	a := b.download("i")
	b.expect("download", a, 200)
	for name, want := range map[string]string{
		"Content-Type": "application/x-yaml", "Content-Disposition": "attachment; filename=kubeconfig.yaml",
		"Access-Control-Allow-Origin": "*",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	config, err := clientcmd.Load([]byte(a.raw))
	require.NoError(t, err)
	current := config.Contexts[config.CurrentContext]
	if current == nil {
		t.Fatalf("no current context in %s", a.raw)
	}
	cluster, user := config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo]
	if cluster.Server != "https://api.example.org/ga-1/runtime-of-i" || string(cluster.CertificateAuthorityData) != "CA" {
		t.Errorf("the cluster is %+v", cluster)
	}
	if user.Exec == nil || user.Token != "" || user.Exec.Command != "kubectl" || user.Exec.Args[0] != "oidc-login" {
		t.Fatalf("the user is %+v", user)
	}
	for _, want := range []string{`--oidc-issuer-url=https://issuer.example.org/: {}"`, "--oidc-client-id=my-client"} {
		if !slices.Contains(user.Exec.Args, want) {
			t.Errorf("the arguments %v lack %q", user.Exec.Args, want)
		}
	}
}

func TestKubeconfig_Unavailable_ReturnsReason(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	r := newRuntimes(b)
	b.provisioned("i")
	b.ended("own", b.accepted(b.put("own", ownOrder())), "succeeded")
	b.fail(event.Provision, true)
	b.ended("failed", b.accepted(b.put("failed", order(azure))), "failed")
	b.hold(true)
	b.accepted(b.put("coming", order(azure)))
	refused := func(id string, status int, says string) {
		t.Helper()
		a := b.download(id)
		b.expect(id, a, status)
		if !strings.Contains(a.text("Error"), says) || len(a.body) != 1 {
			t.Errorf("%s: the answer is %s, want Error with %q", id, a.raw, says)
		}
	}
	refused("", 404, "lacks an instance id")
	refused("unknown", 404, "no such service instance")
	refused("own", 404, "own cluster")
	refused("failed", 404, "provisioning of the service instance failed")
	refused("coming", 404, "is being provisioned")
	refused("a%00b", 400, "no valid instance id")
	b.accepted(b.delete("i"))
	refused("i", 404, "is deleted")
	b.orch.set(func() { b.orch.held, b.orch.failing[event.Provision] = false, false })

	b.provisioned("j")
	b.expect("download", b.download("j"), 200)
	r.set(func() { r.failing = true })
	refused("j", 503, "try again later")
	r.stop()
	refused("j", 503, "try again later")
	r.set(func() { r.failing = false })
	r.start()
	b.expect("download", b.download("j"), 200)
	b.exec(`UPDATE broker.instances SET effective_parameters = '{}' WHERE id = 'j'`)
	refused("j", 500, "could not be built")
	b.exec(`UPDATE broker.instances SET runtime_id = '' WHERE id = 'j'`)
	refused("j", 404, "has no runtime")
	b.database.Cut()
	refused("j", 503, "try again later")
	b.database.Restore()
	testkit.Eventually(t, waitTimeout, "the database", func() bool { return b.broker.Ready(t.Context()) == nil })
}

func TestKubeconfig_Origin_MustBeAllowed(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) {
		c.KubeconfigOrigins = []string{"https://dashboard.example.org", "https://busola.example.org"}
	})
	for origin, want := range map[string]string{
		"https://busola.example.org": "https://busola.example.org", "https://evil.example.org": "", "": "",
	} {
		if got := b.download("unknown", "Origin", origin).header.Get("Access-Control-Allow-Origin"); got != want {
			t.Errorf("the page of %q is allowed to %q, want %q", origin, got, want)
		}
	}
	for _, bad := range []string{"*,https://a.example.org", "dashboard.example.org", "https://a.example.org/path"} {
		cfg := b.cfg
		cfg.KubeconfigOrigins = strings.Split(bad, ",")
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "KEB_KUBECONFIG_ALLOW_ORIGINS") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
