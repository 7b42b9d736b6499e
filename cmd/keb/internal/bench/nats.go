package bench

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
)

// Keeping is the storage mode of NATS; empty means OneServer.
type Keeping string

// Storage modes: one server, or a cluster of three in this process. They flush to the disk every two minutes, which is
// the default of NATS, or before each acknowledgement.
const (
	OneServer            Keeping = "r1"
	OneServerAlways      Keeping = "r1-always"
	ClusterOfThree       Keeping = "r3"
	ClusterOfThreeAlways Keeping = "r3-always"
	natsStart                    = 10 * time.Second
	natsCluster                  = 30 * time.Second
	natsPoll                     = 50 * time.Millisecond
)

// Keepings lists the storage modes.
func Keepings() []Keeping {
	return []Keeping{OneServer, OneServerAlways, ClusterOfThree, ClusterOfThreeAlways}
}

func (k Keeping) servers() int {
	if k == ClusterOfThree || k == ClusterOfThreeAlways {
		return 3
	}
	return 1
}

// startNATS starts one server or a cluster with empty stores below dir. Accounts are a configuration of installation.RenderNATS; without them
// every client has all permissions.
func startNATS(dir string, k Keeping, accounts []byte) (servers []*natsserver.Server, err error) {
	defer func() {
		if err != nil {
			stopNATS(servers)
		}
	}()
	routes, err := freeAddresses(k.servers())
	if err != nil {
		return nil, fmt.Errorf("start nats: %w", err)
	}
	for i := range k.servers() {
		o := &natsserver.Options{
			Host: "127.0.0.1", Port: natsserver.RANDOM_PORT, JetStream: true, NoSigs: true, NoLog: true,
			StoreDir:           filepath.Join(dir, fmt.Sprint(i)),
			JetStreamMaxMemory: 1 << 30, JetStreamMaxStore: 32 << 30, SyncAlways: k == OneServerAlways || k == ClusterOfThreeAlways,
		}
		if len(accounts) > 0 {
			if err := o.ProcessConfigString(string(accounts)); err != nil {
				return servers, fmt.Errorf("start nats: accounts: %w", err)
			}
		}
		if k.servers() > 1 {
			o.ServerName = fmt.Sprintf("bench-%d", i)
			o.Cluster = natsserver.ClusterOpts{Name: "bench", Host: "127.0.0.1", Port: routes[i].Port}
			for _, r := range routes {
				o.Routes = append(o.Routes, &url.URL{Scheme: "nats", Host: r.String()})
			}
		}
		server, err := natsserver.NewServer(o)
		if err != nil {
			return servers, fmt.Errorf("start nats: %w", err)
		}
		servers = append(servers, server)
		server.Start()
	}
	for _, server := range servers {
		if !server.ReadyForConnections(natsStart) {
			return servers, errors.New("start nats: not ready in time")
		}
	}
	return servers, awaitCluster(servers)
}

// freeAddresses returns unused loopback addresses. Each server of a cluster is configured with all of them.
func freeAddresses(n int) ([]*net.TCPAddr, error) {
	addresses := make([]*net.TCPAddr, n)
	for i := range addresses {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		addresses[i] = l.Addr().(*net.TCPAddr) // a TCP listener has no other
	}
	return addresses, nil
}

// awaitCluster waits until the cluster has a leader that lists all servers.
func awaitCluster(servers []*natsserver.Server) error {
	tick := time.NewTicker(natsPoll)
	defer tick.Stop()
	for end := time.Now().Add(natsCluster); len(servers) > 1; <-tick.C {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(servers) {
				return nil // only the leader lists all servers
			}
		}
		if time.Now().After(end) {
			return errors.New("start nats: the cluster has no leader in time")
		}
	}
	return nil
}

func stopNATS(servers []*natsserver.Server) {
	for _, s := range servers {
		s.Shutdown()
	}
	for _, s := range servers {
		s.WaitForShutdown()
	}
}
