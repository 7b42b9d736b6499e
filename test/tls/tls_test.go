package tls

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/bus"
	"github.com/kyma-project/keb/libs/postgres"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/tlsfiles"
	"github.com/kyma-project/keb/test/internal/harness"
)

func TestTLS_MutualOnAllHops_Works(t *testing.T) {
	testkit.Suite(t, "tls")
	w := start(t)
	begin := time.Now()
	out, err := w.cli(true, "provision", "-f", "../../examples/requests/azure.json", "--wait", "--timeout", "3m")
	if err != nil {
		t.Fatalf("provision: %v: %s", err, out)
	}
	took := time.Since(begin)
	if out, err := w.cli(true, "operations"); err != nil || !strings.Contains(out, "succeeded") {
		t.Errorf("operations: %v: %s", err, out)
	}
	if out, err := w.cli(true, "runtimes"); err != nil || !strings.Contains(out, "azure") {
		t.Errorf("runtimes: %v: %s", err, out)
	}
	jobs := exec.CommandContext(t.Context(), harness.Build(t, "services/jobs/cmd/jobs", "jobs"), "deprovision-retrigger")
	jobs.Env = append(os.Environ(), "KEB_BROKER_URL=https://"+w.osb, "KEB_OSB_USER=keb", "KEB_OSB_PASSWORD_FILE="+w.secrets.Path("cli", "osb-password"))
	for name, value := range w.files("KEB_BROKER_", "KEB_BROKER_", "cli") {
		jobs.Env = append(jobs.Env, name+"="+value)
	}
	if out, err := jobs.CombinedOutput(); err != nil {
		t.Errorf("job: %v: %s", err, out)
	}

	sessions := w.sessions()
	connections := w.connections()
	w.refusals()
	renewed := w.renew()
	fmt.Printf(`
TLS, with a certificate for each process:
  provisioning of plan azure                     %s
  sessions of Postgres, all with TLS             %d
  connections of NATS, all with TLS              %d
  requests while the certificates were renewed   %d, failed 0
`, took.Round(10*time.Millisecond), sessions, connections, renewed)
}

// sessions counts those of broker and orchestrator in Postgres; none may be without TLS and a certificate.
func (w *world) sessions() int {
	w.t.Helper()
	db, err := postgres.Open(w.t.Context(), postgres.Config{URL: w.databaseURL, TLS: w.client("broker"), MaxOpen: 1})
	require.NoError(w.t, err)
	defer func() { _ = postgres.Close(db) }()
	var found []struct {
		User string  `db:"usename"`
		SSL  bool    `db:"ssl"`
		DN   *string `db:"client_dn"`
	}
	if err := db.SelectContext(w.t.Context(), &found,
		`SELECT usename, ssl, client_dn FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename IN ('broker', 'orchestrator')`); err != nil {
		w.t.Fatal(err)
	}
	for _, s := range found {
		if !s.SSL || s.DN == nil || *s.DN != "/CN="+s.User {
			w.t.Errorf("a session of %s: TLS %t, certificate %v", s.User, s.SSL, s.DN)
		}
	}
	if len(found) < 2 {
		w.t.Errorf("%d sessions", len(found))
	}
	return len(found)
}

// connections counts those of NATS.
func (w *world) connections() int {
	w.t.Helper()
	list, err := w.nats.Connz(&server.ConnzOptions{Username: true})
	require.NoError(w.t, err)
	for _, c := range list.Conns {
		if c.TLSVersion == "" {
			w.t.Errorf("a connection of %s is without TLS", c.AuthorizedUser)
		}
	}
	if len(list.Conns) < 10 {
		w.t.Errorf("%d connections", len(list.Conns))
	}
	return len(list.Conns)
}

// refusals tries each door without a certificate.
func (w *world) refusals() {
	w.t.Helper()
	for _, args := range [][]string{{"operations"}, {"runtimes"}} {
		if out, err := w.cli(false, args...); err == nil || !strings.Contains(out, "set KEB_CERT_FILE and KEB_KEY_FILE") {
			w.t.Errorf("%v without a certificate: %v: %s", args, err, out)
		}
	}
	ctx, stop := context.WithTimeout(w.t.Context(), limit)
	defer stop()
	ca := tlsfiles.Client{CAFile: w.secrets.Path("cli", "ca.crt")}
	if _, err := bus.Connect(ctx, bus.Config{URL: w.nats.ClientURL(), User: "broker", Password: w.secrets.Read("broker/nats-password"), TLS: ca}, bus.Deps{}); err == nil ||
		!strings.Contains(err.Error(), "KEB_NATS_CERT_FILE") {
		w.t.Errorf("NATS without a certificate: %v", err)
	}
	if _, err := postgres.Open(ctx, postgres.Config{URL: w.secrets.Read("broker/database-url"), TLS: ca}); err == nil || !strings.Contains(err.Error(), "valid client certificate") {
		w.t.Errorf("Postgres without a certificate: %v", err)
	}
	for _, addr := range w.metrics {
		if code, _, err := w.ask("", "https://"+addr+"/healthz"); err != nil || code != http.StatusOK {
			w.t.Errorf("health without a certificate: %d, %v", code, err)
		}
		if code, _, err := w.ask("", "https://"+addr+"/metrics"); err != nil || code != http.StatusForbidden {
			w.t.Errorf("metrics without a certificate: %d, %v", code, err)
		}
		if code, body, err := w.ask("cli", "https://"+addr+"/metrics"); err != nil || code != http.StatusOK || !strings.Contains(body, "go_goroutines") {
			w.t.Errorf("metrics with a certificate: %d, %v", code, err)
		}
	}
}

// renew makes new certificates for broker and orchestrator under requests, and returns how many there were.
func (w *world) renew() int {
	w.t.Helper()
	serial := func(addr string) string {
		w.t.Helper()
		cfg, err := w.client("cli").Config("KEB_")
		require.NoError(w.t, err)
		conn, err := (&tls.Dialer{Config: cfg}).DialContext(w.t.Context(), "tcp", addr)
		require.NoError(w.t, err)
		defer func() { _ = conn.Close() }()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	addrs := map[string]string{"broker": w.osb, "orchestrator": w.operator}
	before := map[string]string{}
	ends := w.ends()
	for service, addr := range addrs {
		before[service] = serial(addr)
		require.NoError(w.t, os.Remove(w.secrets.Path("init", "tls-"+service+".pem")))
	}
	_, address, _ := strings.Cut(w.databaseURL, "@")
	host, _, _ := strings.Cut(address, "/")
	w.makeSecrets(host)
	requests := 0
	for service, addr := range addrs {
		testkit.Eventually(w.t, limit, service+" shows its new certificate", func() bool {
			requests++
			if code, _, err := w.ask("cli", "https://"+addr+"/healthz"); err != nil || code >= http.StatusInternalServerError {
				w.t.Errorf("a request to %s: %d, %v", service, code, err)
			}
			return serial(addr) != before[service]
		})
	}
	for file, after := range w.ends() {
		if renewed := !strings.HasPrefix(file, "worker-") && strings.HasSuffix(file, "_CERT_FILE"); renewed != after.After(ends[file]) {
			w.t.Errorf("%s: ended %s before the renewals, and %s after", file, ends[file], after)
		}
	}
	if out, err := w.cli(true, "operations"); err != nil {
		w.t.Errorf("after the renewal: %v: %s", err, out)
	}
	return requests
}

// ends are the times that the metrics of each process have for the files in its variables.
func (w *world) ends() map[string]time.Time {
	w.t.Helper()
	found := map[string]time.Time{}
	for service, addr := range w.metrics {
		_, body, err := w.ask("cli", "https://"+addr+"/metrics")
		require.NoError(w.t, err)
		for _, line := range regexp.MustCompile(`(?m)^keb_tls_certificate_not_after_timestamp_seconds\{variable="(\w+)"\} (\S+)$`).FindAllStringSubmatch(body, -1) {
			at, err := strconv.ParseFloat(line[2], 64)
			require.NoError(w.t, err)
			found[service+" "+line[1]] = time.Unix(int64(at), 0)
		}
	}
	// Broker and orchestrator have four hops, each worker two; each has a certificate and an authority.
	if workers := len(w.metrics) - 2; len(found) != 2*(4+4+2*workers) {
		w.t.Errorf("the metrics tell of %d files: %v", len(found), found)
	}
	return found
}
