package compose

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/api/operator"
	"github.com/kyma-project/keb/libs/testkit"
)

// held is how many operations wait in the middle while certificates are renewed.
const held = 5

func TestEngine_TLS_LosesNoOperation(t *testing.T) {
	testkit.Suite(t, "compose")
	begin := time.Now()
	in := up(t, []string{overrideFile}, mutual+"="+mutualFile)
	started := time.Since(begin)
	in.confined(t)
	in.metrics(t)
	w := &encrypted{installation: in, files: in.certificates(t)}

	instance := uuid.NewString()
	begin = time.Now()
	w.keb(t, "succeeded", "provision", "-f", "/examples/aws.json", "--wait", "--id", instance)
	provisioned := time.Since(begin)
	w.keb(t, instance, "runtimes")
	in.run("run", "--rm", "-T", "jobs", "deprovision-retrigger")
	w.doors(t)
	sessions, before := w.sessions(t), w.connections(t)

	orders, requests := w.renew(t)
	w.end(t, orders)
	outlived := 0
	for id := range w.connections(t) {
		if before[id] {
			outlived++
		}
	}
	// The engine restarts the server after a crash; after "docker kill -s HUP" it would not. All clients now see the new certificates.
	in.restarts(t, "nats")
	in.healthy()
	begin = time.Now()
	w.keb(t, "succeeded", "deprovision", instance, "--wait")
	deprovisioned := time.Since(begin)
	after := w.connections(t)
	w.sessions(t)
	fmt.Printf(`
docker-compose.tls.yml, with a certificate for each process:
  containers healthy after                               %d, %s
  provisioning of plan aws, deprovisioning               %s, %s
  sessions of Postgres, all with TLS and a certificate   %d
  connections of NATS, all with TLS                      %d; after a crash of the server %d
  certificates renewed                                   all, with %d operations in flight, which succeeded
  requests meanwhile                                     %d, failed 0
  connections of NATS that stayed                        %d
`, len(in.containers()), started.Round(time.Second), provisioned.Round(time.Second), deprovisioned.Round(time.Second), sessions, len(before), len(after),
		len(orders), requests, outlived)
}

// encrypted is an installation whose APIs, Postgres and NATS demand certificates.
type encrypted struct {
	*installation
	// files are those of the service edge.
	files *tls.Config
}

// certificates are the files of the edge, as this test's own.
func (in *installation) certificates(t *testing.T) *tls.Config {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(in.copied(t, "edge", mutualFile)) {
		t.Fatal("the edge has no authority")
	}
	pair, err := tls.X509KeyPair(in.copied(t, "edge", "/run/keb/tls.crt"), in.copied(t, "edge", "/run/keb/tls.key"))
	require.NoError(t, err)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
}

// copied is a file of a container, in which there may be no program to print it.
func (in *installation) copied(t *testing.T, service, path string) []byte {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "docker", "cp", "-L", in.one(t, service).ID+":"+path, "-").Output()
	require.NoErrorf(t, err, "%s of %s", path, service)
	archive := tar.NewReader(bytes.NewReader(out))
	_, err = archive.Next()
	require.NoError(t, err)
	content, err := io.ReadAll(archive)
	require.NoError(t, err)
	return content
}

func (in *installation) one(t *testing.T, service string) container {
	t.Helper()
	containers := in.containers()
	at := slices.IndexFunc(containers, func(c container) bool { return c.service() == service })
	if at < 0 {
		t.Fatalf("%s does not run", service)
	}
	return containers[at]
}

// keb runs a command as docs/install.md says.
func (w *encrypted) keb(t *testing.T, says string, args ...string) {
	t.Helper()
	if out := w.run(append([]string{"run", "--rm", "-T", "cli"}, args...)...); !strings.Contains(out, says) {
		t.Errorf("keb %s says\n%s", strings.Join(args, " "), out)
	}
}

// client asks the APIs through the edge, on new connections.
func (w *encrypted) client(files *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: files, DisableKeepAlives: true}, Timeout: 20 * time.Second}
}

func (w *encrypted) ask(ctx context.Context, client *http.Client, url string) (int, []byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("X-Broker-API-Version", "2.14")
	if strings.Contains(url, "/v2/") {
		request.SetBasicAuth("keb", w.secrets[osbPassword])
	} else {
		request.Header.Set("Authorization", "Bearer "+w.secrets[operatorToken])
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	return answer.StatusCode, body, err
}

// addresses are what is asked of broker and orchestrator.
func (w *encrypted) addresses() []string {
	return []string{
		"127.0.0.1:" + w.ports["KEB_OSB_PORT"] + "/oauth/cf-eu10/v2/catalog",
		"127.0.0.1:" + w.ports["KEB_OPERATOR_PORT"] + "/operations?page_size=1000",
	}
}

// doors tries each without TLS and without a certificate.
func (w *encrypted) doors(t *testing.T) {
	t.Helper()
	for _, address := range w.addresses() {
		if code, body, err := w.ask(t.Context(), w.client(w.files), "https://"+address); err != nil || code != http.StatusOK {
			t.Errorf("%s with a certificate: %d, %v: %s", address, code, err, body)
		}
		if code, body, err := w.ask(t.Context(), w.client(nil), "http://"+address); err != nil || code != http.StatusBadRequest {
			t.Errorf("%s without TLS: %d, %v: %s", address, code, err, body)
		}
		without := &tls.Config{RootCAs: w.files.RootCAs, MinVersion: tls.VersionTLS12}
		if code, body, err := w.ask(t.Context(), w.client(without), "https://"+address); err == nil {
			t.Errorf("%s without a certificate: %d: %s", address, code, body)
		}
	}
	for mode, refusal := range map[string]string{"disable": "no encryption", "require": "valid client certificate"} {
		out := w.try("exec", "-T", "-e", "PGPASSWORD=wrong", "postgres", "psql", "host=127.0.0.1 dbname=keb user=broker sslmode="+mode, "-c", "SELECT 1")
		if !strings.Contains(out, refusal) {
			t.Errorf("Postgres with sslmode=%s and no certificate says %q", mode, out)
		}
	}
}

// sessions counts those of broker and orchestrator in Postgres.
func (w *encrypted) sessions(t *testing.T) int {
	t.Helper()
	found := map[string]int{}
	out := w.run("exec", "-T", "postgres", "psql", "-U", "postgres", "-d", "keb", "-At", "-F", " ", "-c",
		"SELECT usename, ssl, client_dn FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename IN ('broker', 'orchestrator')")
	count := 0
	for line := range strings.Lines(out) {
		session := strings.Fields(line)
		if len(session) != 3 || session[1] != "t" || session[2] != "/CN="+session[0] {
			t.Errorf("a session of Postgres: user, TLS, certificate are %q", session)
			continue
		}
		found[session[0]]++
		count++
	}
	if len(found) != 2 {
		t.Errorf("sessions of Postgres by user: %v", found)
	}
	return count
}

// connections are the numbers of those to NATS.
func (w *encrypted) connections(t *testing.T) map[int]bool {
	t.Helper()
	var list struct {
		Connections []struct {
			CID     int    `json:"cid"`
			Name    string `json:"name"`
			Version string `json:"tls_version"`
		}
	}
	out := w.run("exec", "-T", "nats", "wget", "-q", "-O", "-", "http://127.0.0.1:8222/connz?limit=10000")
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	found := map[int]bool{}
	for _, c := range list.Connections {
		if c.Version == "" {
			t.Errorf("a connection of %s to NATS is without TLS", c.Name)
		}
		found[c.CID] = true
	}
	// Broker, orchestrator and the workers.
	if len(found) < len(w.services)-7 {
		t.Errorf("%d connections to NATS for %v", len(found), w.services)
	}
	return found
}

// renew makes all certificates new while operations and requests are under way; it returns the former, and counts the latter.
func (w *encrypted) renew(t *testing.T) (instances []string, requests int) {
	t.Helper()
	// Nothing ends meanwhile: a step of each operation is tried again and again.
	w.sys.Fault("provisioner", `{"outage": true}`)
	for range held {
		instances = append(instances, uuid.NewString())
		w.keb(t, "", "provision", "-f", "/examples/aws.json", "--id", instances[len(instances)-1])
	}
	old := w.serials(t)
	ctx, stop := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for ctx.Err() == nil {
			for _, address := range w.addresses() {
				// The request is finished, also the last one.
				if code, body, err := w.ask(t.Context(), w.client(w.files), "https://"+address); err != nil || code != http.StatusOK {
					failed <- fmt.Errorf("request %d, to %s: %d, %w: %s", requests, address, code, err, body)
					return
				}
				requests++
			}
		}
	}()
	// As when they end soon: the next start of init makes them anew. The authority stays.
	docker(t, "run", "--rm", "--network", "none", "-v", project+"_secrets-init:/kept", "--entrypoint", "/bin/sh",
		w.one(t, "nats").Config.Image, "-c", "rm /kept/tls-*.pem")
	w.run("run", "--rm", "-T", "init")
	for _, server := range []string{"nats", "postgres"} {
		w.run("exec", "-T", server, "sh", "-c", "kill -HUP 1")
	}
	testkit.Eventually(t, limit, "all servers show a new certificate", func() bool {
		now := w.serials(t)
		for name, serial := range old {
			if now[name] == serial {
				return false
			}
		}
		return true
	})
	t.Logf("new certificates at %v", slices.Sorted(maps.Keys(old)))
	stop()
	if err := <-failed; err != nil {
		t.Error(err)
	}
	w.healthy()
	for _, id := range instances {
		if state := w.state(t, id); state != "in progress" {
			t.Errorf("the provisioning of %s is %s while nothing can end it", id, state)
		}
	}
	w.sys.Fault("provisioner", `{}`)
	return instances, requests
}

// state is that of the newest operation of an instance.
func (w *encrypted) state(t *testing.T, instance string) string {
	t.Helper()
	code, body, err := w.ask(t.Context(), w.client(w.files), "https://"+w.addresses()[1])
	var list operator.OperationList
	if err != nil || code != http.StatusOK || json.Unmarshal(body, &list) != nil {
		t.Fatalf("operations: %d, %v: %s", code, err, body)
	}
	for _, op := range list.Data {
		if op.InstanceID == instance {
			return string(op.State)
		}
	}
	return ""
}

// end waits until the operations have succeeded.
func (w *encrypted) end(t *testing.T, instances []string) {
	t.Helper()
	for _, id := range instances {
		state := ""
		testkit.Eventually(t, limit, "the end of the provisioning of "+id, func() bool {
			state = w.state(t, id)
			return state == "succeeded" || state == "failed"
		})
		if state != "succeeded" {
			t.Errorf("the provisioning of %s has %s", id, state)
		}
	}
}

// serials are those of the certificates that servers show; Postgres and NATS only where the networks of the engine are in reach.
func (w *encrypted) serials(t *testing.T) map[string]string {
	t.Helper()
	shown := map[string]string{
		"broker":       w.serial(t, "broker", "127.0.0.1:"+w.ports["KEB_OSB_PORT"], nil),
		"orchestrator": w.serial(t, "orchestrator", "127.0.0.1:"+w.ports["KEB_OPERATOR_PORT"], nil),
	}
	for name, server := range map[string]struct {
		network, port string
		greet         func(net.Conn) error
	}{
		"nats":     {"bus", "4222", greetNATS},
		"postgres": {"db", "5432", greetPostgres},
	} {
		addr := net.JoinHostPort(w.one(t, name).NetworkSettings.Networks[project+"_"+server.network].IPAddress, server.port)
		conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
		if err != nil {
			t.Logf("not seen, the certificate of %s: %v", name, err)
			continue
		}
		_ = conn.Close()
		shown[name] = w.serial(t, name, addr, server.greet)
	}
	return shown
}

// serial is that of the certificate at an address, after what comes before TLS there.
func (w *encrypted) serial(t *testing.T, name, addr string, greet func(net.Conn) error) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	require.NoErrorf(t, err, "%s", name)
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	if greet != nil {
		require.NoErrorf(t, greet(conn), "%s", name)
	}
	cfg := w.files.Clone()
	cfg.ServerName = name
	secured := tls.Client(conn, cfg)
	require.NoErrorf(t, secured.HandshakeContext(t.Context()), "%s", name)
	return secured.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// greetNATS reads the line with which the server begins.
func greetNATS(conn net.Conn) error {
	one := make([]byte, 1)
	for one[0] != '\n' {
		if _, err := io.ReadFull(conn, one); err != nil {
			return err
		}
	}
	return nil
}

// greetPostgres asks for TLS.
func greetPostgres(conn net.Conn) error {
	const sslRequest = 80877103
	question := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 8), sslRequest)
	if _, err := conn.Write(question); err != nil {
		return err
	}
	answer := make([]byte, 1)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return err
	}
	if answer[0] != 'S' {
		return fmt.Errorf("it answers %q to the wish for TLS", answer)
	}
	return nil
}
