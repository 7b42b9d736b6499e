// Package containers runs the images of this repository with Postgres and NATS in containers, and kills each of them while it orders:
// make e2e SUITE=containers, wherever there is a Docker engine.
package containers

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/api/types/container"
	mobynetwork "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"

	"github.com/kyma-project/keb/libs/osb"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/test/internal/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Tests{M: m}.Run()) }

const (
	root = "../.."
	// limit is for one condition.
	limit = 5 * time.Minute
	// The images that are not ours, as docker-compose.yml names them.
	postgresImage = "postgres:17-alpine"
	natsImage     = "nats:2.12-alpine"
)

// installation is what docker-compose.yml describes, without the door: broker, orchestrator and landscape are reached directly.
type installation struct {
	t          *testing.T
	secrets    harness.Secrets
	network    *testcontainers.DockerNetwork
	containers map[string]testcontainers.Container
	sys        *harness.System
}

func TestContainers_EachKilled_LoseNoOrder(t *testing.T) {
	testkit.Suite(t, "containers")
	in := install(t)
	first := harness.Azure()
	in.sys.PollEnd(first, in.sys.Provision(first), osb.StateSucceeded, limit)
	before := in.sys.Holds()

	engine, err := testcontainers.NewDockerClientWithOpts(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = engine.Close() })
	ids := map[string]*harness.Order{}
	for _, name := range slices.Sorted(maps.Keys(in.containers)) {
		id, order := in.order()
		ids[id] = order
		c := in.containers[name]
		_, err := engine.ContainerKill(t.Context(), c.GetContainerID(), client.ContainerKillOptions{Signal: "KILL"})
		require.NoErrorf(t, err, "kill %s", name)
		require.NoErrorf(t, c.Start(t.Context()), "start %s again", name)
	}
	id, order := in.order()
	ids[id] = order
	for id, order := range ids {
		in.sys.PollEnd(order, id, osb.StateSucceeded, limit)
		if op := in.sys.Operation(id); len(op.RanAgain()) > 0 || len(op.NotCompleted) > 0 {
			t.Errorf("operation %s: ran again %v, not completed %v", id, op.RanAgain(), op.NotCompleted)
		}
	}
	made, after, want := map[string]int{}, in.sys.Holds(), harness.Complete().Created(len(ids))
	for key := range want {
		made[key] = after[key] - before[key]
	}
	if diff := cmp.Diff(want, made); diff != "" {
		t.Errorf("objects in the landscape (-want +got):\n%s", diff)
	}
	in.sys.PollEnd(first, in.sys.Deprovision(first), osb.StateSucceeded, limit)
	fmt.Printf("containers: %d containers killed, %d of %d orders succeeded\n", len(in.containers), len(ids), len(ids))
}

// install starts everything.
func install(t *testing.T) *installation {
	t.Helper()
	in := &installation{t: t, containers: map[string]testcontainers.Container{}}
	in.secrets = harness.MakeSecrets(t, filepath.Join(t.TempDir(), "secrets"))
	var err error
	in.network, err = network.New(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := in.network.Remove(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("remove the network: %v", err)
		}
	})
	script, err := filepath.Abs(filepath.Join(root, "deploy/postgres/init.sh"))
	require.NoError(t, err)
	in.start("postgres", postgresImage,
		testcontainers.WithEnv(map[string]string{"POSTGRES_USER": "postgres", "POSTGRES_DB": "keb", "POSTGRES_PASSWORD_FILE": "/run/keb/postgres-password"}),
		testcontainers.WithFiles(testcontainers.ContainerFile{HostFilePath: script, ContainerFilePath: "/docker-entrypoint-initdb.d/init.sh", FileMode: 0o755}),
		// Over TCP: while the database is made, the server listens on a socket only.
		waitFor("pg_isready", "-q", "-h", "127.0.0.1", "-U", "postgres", "-d", "keb"))
	in.start("nats", natsImage, testcontainers.WithCmd("-c", "/run/keb/nats.conf"), waitFor("wget", "-q", "-O", "/dev/null", "http://127.0.0.1:8222/healthz"))

	doors := map[string]string{"broker": "8080/tcp", "orchestrator": "8081/tcp", "landscape": "8090/tcp"}
	addr := map[string]string{}
	services := harness.Compose(t, root, harness.Composition{Values: map[string]string{"KEB_PACE": "300ms", "KEB_OSB_RETRY_AFTER": "1s"}})
	// Otherwise AvS keeps an evaluation whose creation got no answer, as the known contract has no look-up (docs/contracts/avs.md#calls).
	services["worker-avs"].Environment["KEB_AVS_LOOK_UP"] = "true"
	services["landscape"].Environment["KEB_LANDSCAPE_AVS_LOOK_UP"] = "true"
	for _, name := range slices.Sorted(maps.Keys(services)) {
		s := services[name]
		opts := []testcontainers.ContainerCustomizer{testcontainers.WithEnv(s.Environment), testcontainers.WithCmd(s.Command...), waitFor(s.Healthcheck.Test[1:]...)}
		if port := doors[name]; port != "" {
			addr[name] = testkit.Addr(t)
			opts = append(opts, testcontainers.WithExposedPorts(port), bind(port, addr[name]))
		}
		in.start(name, s.Image, opts...)
	}
	in.sys = harness.Connect(t, harness.Remote{
		OSBAddr: addr["broker"], OperatorAddr: addr["orchestrator"], LandscapeAddr: addr["landscape"],
		Password: in.secrets.Read("cli/osb-password"), Token: in.secrets.Read("cli/operator-token"),
	})
	return in
}

// bind gives a port of a container an address that it keeps when the container starts again.
func bind(port, addr string) testcontainers.CustomizeRequestOption {
	return testcontainers.WithHostConfigModifier(func(c *container.HostConfig) {
		at := netip.MustParseAddrPort(addr)
		c.PortBindings = mobynetwork.PortMap{mobynetwork.MustParsePort(port): {{HostIP: at.Addr(), HostPort: strconv.Itoa(int(at.Port()))}}}
	})
}

// waitFor waits for a command in the container to succeed.
func waitFor(command ...string) testcontainers.CustomizeRequestOption {
	return testcontainers.WithWaitStrategyAndDeadline(limit, wait.ForExec(command).WithStartupTimeout(limit))
}

// start starts a container with the secrets of its service. The others find it by its name.
func (in *installation) start(name, image string, opts ...testcontainers.ContainerCustomizer) {
	in.t.Helper()
	files, err := filepath.Glob(in.secrets.Path(name, "*"))
	require.NoError(in.t, err)
	for _, file := range files {
		opts = append(opts, testcontainers.WithFiles(testcontainers.ContainerFile{
			HostFilePath: file, ContainerFilePath: "/run/keb/" + filepath.Base(file), FileMode: 0o444,
		}))
	}
	c, err := testcontainers.Run(in.t.Context(), image, append(opts, network.WithNetwork([]string{name}, in.network))...)
	in.t.Cleanup(func() {
		if in.t.Failed() && c != nil {
			in.logs(name, c)
		}
		if err := testcontainers.TerminateContainer(c); err != nil {
			in.t.Errorf("remove %s: %v", name, err)
		}
	})
	require.NoErrorf(in.t, err, "start %s", name)
	in.containers[name] = c
}

// logs shows the end of a container's log.
func (in *installation) logs(name string, c testcontainers.Container) {
	log, err := c.Logs(context.WithoutCancel(in.t.Context()))
	if err != nil {
		return
	}
	defer func() { _ = log.Close() }()
	var text strings.Builder
	buffer := make([]byte, 32<<10)
	for {
		n, err := log.Read(buffer)
		text.Write(buffer[:n])
		if err != nil {
			break
		}
	}
	out := text.String()
	in.t.Logf("the end of the log of %s:\n%s", name, out[max(0, len(out)-4000):])
}

// order places an order the way a platform does: again until it is accepted.
func (in *installation) order() (id string, order *harness.Order) {
	in.t.Helper()
	order = harness.Azure()
	testkit.Eventually(in.t, limit, "the order is accepted", func() bool {
		ctx, cancel := context.WithTimeout(in.t.Context(), 10*time.Second)
		defer cancel()
		answer, err := in.sys.Platform().Provision(ctx, order.InstanceID, order.Body())
		if err != nil || answer.Operation == "" {
			return false
		}
		id = answer.Operation
		return true
	})
	return id, order
}
