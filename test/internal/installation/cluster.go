//go:build linux

package installation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// toRoute ends the name under which Addr has the address of a NATS server for the others of its cluster.
const toRoute = " route"

func serverNames(n int) []string {
	if n <= 1 {
		return []string{ToNATS}
	}
	names := make([]string, n)
	for i := range n {
		names[i] = fmt.Sprintf("%s-%d", ToNATS, i)
	}
	return names
}

// natsProxies returns the addresses at which a replica of a role reaches the NATS servers.
func (w *World) natsProxies(who string) string {
	addrs := make([]string, len(w.Servers))
	for i, name := range w.Servers {
		addrs[i] = w.proxy(who, name)
	}
	return strings.Join(addrs, ",nats://")
}

// clusterBlock returns the configuration of a server in a cluster. It connects to the next server through a proxy, so that there is one
// connection for each pair of three servers, and advertises an address at which nothing listens, so that no connection bypasses a proxy.
func (w *World) clusterBlock(name string) string {
	if len(w.Servers) == 1 {
		return ""
	}
	next := w.Servers[(slices.Index(w.Servers, name)+1)%len(w.Servers)]
	return fmt.Sprintf("\ncluster {name: keb, listen: %q, advertise: \"127.0.0.1:9\", no_advertise: true, routes: [\"nats://%s\"]}", w.Addr[name+toRoute], w.proxy(name, next+toRoute))
}

// Connect connects a user of the suite to NATS servers, without a proxy.
func (w *World) Connect(user string, servers ...string) *nats.Conn {
	w.T.Helper()
	urls := make([]string, len(servers))
	for i, name := range servers {
		urls[i] = "nats://" + w.Addr[name]
	}
	nc, err := nats.Connect(strings.Join(urls, ","), nats.UserInfo(user, adminPassword), nats.MaxReconnects(-1), nats.ReconnectWait(200*time.Millisecond), nats.RetryOnFailedConnect(true))
	require.NoError(w.T, err)
	return nc
}

// Partition drops what the three NATS servers of a cluster send each other, until heal is called. drop reports whether the messages of one server to
// another are lost.
func (w *World) Partition(drop func(from, to string) bool) (heal func()) {
	var heals []func()
	for _, from := range w.Servers {
		for _, to := range w.Servers {
			if from == to || !drop(from, to) {
				continue
			}
			if p := w.Proxies[from+" "+to+toRoute]; p != nil {
				heals = append(heals, w.Toxic(p, silence("upstream")))
			} else {
				heals = append(heals, w.Toxic(w.Proxies[to+" "+from+toRoute], silence("downstream"))) // the other server has connected
			}
		}
	}
	return func() {
		for _, heal := range heals {
			heal()
		}
	}
}

func silence(stream string) string {
	return fmt.Sprintf(`{"name": "silent-%s", "type": "timeout", "stream": "%s", "attributes": {"timeout": 0}}`, stream, stream)
}

// Toxic adds a toxic to a proxy, until remove is called.
func (w *World) Toxic(p *toxiproxy.Proxy, text string) (remove func()) {
	w.T.Helper()
	toxic, err := p.Toxics.AddToxicJson(strings.NewReader(text))
	require.NoErrorf(w.T, err, "proxy %s", p.Name)
	return func() {
		if err := p.Toxics.RemoveToxic(context.WithoutCancel(w.T.Context()), toxic.Name); err != nil {
			w.T.Errorf("proxy %s: %v", p.Name, err)
		}
	}
}
