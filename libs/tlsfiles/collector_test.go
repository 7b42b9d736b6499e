package tlsfiles_test

import (
	"encoding/pem"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/libs/tlsfiles"
)

const (
	ends   = "keb_tls_certificate_not_after_timestamp_seconds"
	begins = "keb_tls_certificate_not_before_timestamp_seconds"
)

// gather returns the values of a gauge by the variable of the file.
func gather(t *testing.T, r prometheus.Gatherer, name string) map[string]time.Time {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	found := map[string]time.Time{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if len(m.GetLabel()) != 1 || m.GetLabel()[0].GetName() != "variable" {
				t.Errorf("%s has the labels %v", name, m.GetLabel())
			}
			found[m.GetLabel()[0].GetValue()] = time.Unix(int64(m.GetGauge().GetValue()), 0)
		}
	}
	return found
}

func wantTimes(t *testing.T, got, want map[string]time.Time) {
	t.Helper()
	want = maps.Clone(want)
	for variable, at := range want {
		want[variable] = at.Truncate(time.Second)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("times (-want +got):\n%s", diff)
	}
}

// join writes the certificates of several files into one.
func join(t *testing.T, into string, paths ...string) {
	t.Helper()
	var all []byte
	for _, path := range paths {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		all = append(all, content...)
	}
	require.NoError(t, os.WriteFile(into, all, 0o600))
}

func in(d time.Duration) time.Time { return time.Now().Add(d) }

func TestCollector_Files_ReportsValidity(t *testing.T) {
	t.Parallel()
	ca := testkit.NewCA(t, "ours")
	day, week := in(24*time.Hour), in(7*24*time.Hour)
	server := ca.Issue(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}, NotAfter: day})
	shown := ca.Issue(t, testkit.Leaf{Name: "broker", NotAfter: week})
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(tlsfiles.NewCollector(map[string]tlsfiles.Server{
		"KEB_TLS_":         {CertFile: server.CertFile, KeyFile: server.KeyFile, ClientCAFile: ca.File},
		"KEB_METRICS_TLS_": {},
	}, map[string]tlsfiles.Client{
		"KEB_NATS_":     {CAFile: ca.File, CertFile: shown.CertFile, KeyFile: shown.KeyFile},
		"KEB_DATABASE_": {},
	}))
	authority := ca.NotAfter()
	wantTimes(t, gather(t, r, ends), map[string]time.Time{
		"KEB_TLS_CERT_FILE": day, "KEB_TLS_CLIENT_CA_FILE": authority, "KEB_NATS_CERT_FILE": week, "KEB_NATS_CA_FILE": authority,
	})
	if got := gather(t, r, begins); len(got) != 4 || !got["KEB_TLS_CERT_FILE"].Before(time.Now()) || got["KEB_TLS_CERT_FILE"].Before(in(-24*time.Hour)) {
		t.Errorf("they began at %v", got)
	}
	if problems, err := testutil.GatherAndLint(r); err != nil || len(problems) > 0 {
		t.Errorf("problems %v, %v", problems, err)
	}
}

func TestCollector_InvalidRenewal_KeepsLastValid(t *testing.T) {
	t.Parallel()
	ca := testkit.NewCA(t, "ours")
	first, second := in(time.Hour), in(2*time.Hour)
	pair := ca.Issue(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}, NotAfter: first})
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(tlsfiles.NewCollector(map[string]tlsfiles.Server{"KEB_TLS_": serverFiles(pair)}, nil))
	want := func(at time.Time) {
		t.Helper()
		wantTimes(t, gather(t, r, ends), map[string]time.Time{"KEB_TLS_CERT_FILE": at})
	}
	want(first)
	ca.Renew(t, pair, testkit.Leaf{Hosts: []string{"127.0.0.1"}, NotAfter: second})
	want(second)
	// A server accepts none of these, so the second one stays in use.
	ca.Renew(t, pair, testkit.Leaf{Hosts: []string{"127.0.0.1"}, NotAfter: in(-time.Hour)})
	want(second)
	ca.Renew(t, pair, testkit.Leaf{Name: "client", NotAfter: in(9 * time.Hour)})
	want(second)
	require.NoError(t, os.Remove(pair.KeyFile))
	want(second)
}

func TestCollector_ChainAndBundle_ReportsExpiry(t *testing.T) {
	t.Parallel()
	ca := testkit.NewCA(t, "ours")
	soon, late := in(time.Hour), in(9*time.Hour)
	pair := ca.Issue(t, testkit.Leaf{Hosts: []string{"127.0.0.1"}, NotAfter: late})
	between := ca.Issue(t, testkit.Leaf{Name: "between", NotAfter: soon})
	over := ca.Issue(t, testkit.Leaf{Name: "over", NotAfter: in(-time.Hour)})
	last := ca.Issue(t, testkit.Leaf{Name: "last", NotAfter: late})
	dir := t.TempDir()
	chain, bundle := filepath.Join(dir, "chain.crt"), filepath.Join(dir, "bundle.crt")
	join(t, chain, pair.CertFile, between.CertFile)
	join(t, bundle, between.CertFile, last.CertFile, over.CertFile)
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(tlsfiles.NewCollector(map[string]tlsfiles.Server{"KEB_TLS_": {CertFile: chain, KeyFile: pair.KeyFile, ClientCAFile: bundle}}, nil))
	wantTimes(t, gather(t, r, ends), map[string]time.Time{"KEB_TLS_CERT_FILE": soon, "KEB_TLS_CLIENT_CA_FILE": late})
}

// A file that was never valid has no value.
func TestCollector_InvalidFile_HasNoMetric(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("none")}), 0o600))
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(tlsfiles.NewCollector(nil, map[string]tlsfiles.Client{"KEB_NATS_": {CAFile: path}}))
	wantTimes(t, gather(t, r, ends), map[string]time.Time{})
}
