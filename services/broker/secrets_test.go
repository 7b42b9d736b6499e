package broker_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
)

const kubeconfig = `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://api.example.org"}}]
users: [{name: u, user: {token: ` + canary + `}}]
`

func ownOrder() map[string]any {
	o := order(own)
	o["parameters"] = map[string]any{
		"name": "sample", "shootName": "s-1", "shootDomain": "s-1.example.org",
		"kubeconfig": base64.StdEncoding.EncodeToString([]byte(kubeconfig)),
	}
	return o
}

// dump returns every row of every table of the broker as text.
func (b *bench) dump() string {
	b.t.Helper()
	var out strings.Builder
	for _, table := range []string{"instances", "operations", "credentials", "tombstones"} {
		var rows []string
		require.NoError(b.t, b.db.Select(&rows, `SELECT t::text FROM broker.`+table+` t`))
		out.WriteString(strings.Join(rows, "\n"))
	}
	return out.String()
}

func TestSecrets_DatabaseFilesAndLog_ContainNone(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.ended("i", b.accepted(b.put("i", ownOrder())), "succeeded")
	b.provisioned("j")
	b.orch.set(func() { b.orch.retrying = true })
	stuck := b.accepted(b.put("k", order(azure)))
	encoded := base64.StdEncoding.EncodeToString([]byte(kubeconfig))
	dump := b.dump()
	if !strings.Contains(dump, "v1.k1.") {
		t.Fatal("no sealed credentials in the database: the test looks in the wrong place")
	}
	for _, secret := range []string{canary, encoded, encoded[100:140]} {
		if strings.Contains(dump, secret) {
			t.Error("a secret is in the database")
		}
		if strings.Contains(b.log.String(), secret) {
			t.Error("a secret is in the log")
		}
	}
	if a := b.last("k", stuck); strings.Contains(a.raw, canary) {
		t.Errorf("a secret is in the answer %s", a.raw)
	}
	b.orch.set(func() { b.orch.retrying = false })
	b.ended("k", stuck, "succeeded")
	err := filepath.WalkDir(filepath.Join(b.nats.StoreDir(), "$G", "streams", string(event.StreamRequests)),
		func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				return nil
			}
			raw, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) { // the server has replaced the file
				return nil
			}
			if strings.Contains(string(raw), canary) {
				t.Errorf("a secret is in %s", entry.Name())
			}
			return err
		})
	require.NoError(t, err)
}

func TestClaim_EndedOperation_IsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("other")
	b.hold(true)
	operation := b.accepted(b.put("i", ownOrder()))

	a, err := b.claim("i", operation, event.CredentialsServiceManager)
	if err != nil || !strings.Contains(string(a.Credentials), canary) {
		t.Errorf("service manager credentials: %v", err)
	}
	a, err = b.claim("i", operation, event.CredentialsKubeconfig)
	var k struct{ Kubeconfig string }
	if err != nil || json.Unmarshal(a.Credentials, &k) != nil || k.Kubeconfig != kubeconfig {
		t.Errorf("kubeconfig: %v", err)
	}
	refused := func(what, instanceID, operationID, name string) {
		t.Helper()
		if _, err := b.claim(instanceID, operationID, name); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("another instance", "other", operation, event.CredentialsServiceManager)
	refused("another name", "i", operation, "password")
	refused("unknown operation", "i", "unknown", event.CredentialsServiceManager)
	refused("NUL", "i\x00", operation, event.CredentialsServiceManager)
	refused("nothing", "", "", "")
	b.hold(false)
	b.ended("i", operation, "succeeded")
	refused("operation that has ended", "i", operation, event.CredentialsServiceManager)
}

func TestRemoveInstance_Secrets_AreDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.provisioned("i")
	b.ended("i", b.accepted(b.delete("i")), "succeeded")
	b.rows("credentials are left", 0, `SELECT count(*) FROM broker.credentials`)
	if strings.Contains(b.dump(), "user@example.org") {
		t.Error("the person who ordered is still in the database")
	}
}

func TestClaim_WorkerWithoutCommand_IsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.hold(true)
	operation := b.accepted(b.put("i", ownOrder()))
	for _, name := range []string{event.CredentialsServiceManager, event.CredentialsKubeconfig} {
		if _, err := b.claimAs("avs", "i", operation, name); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: another worker gets %v", name, err)
		}
		if a, err := b.claim("i", operation, name); err != nil || !strings.Contains(string(a.Credentials), canary) && name == event.CredentialsServiceManager {
			t.Errorf("%s: the worker that has the command gets %v", name, err)
		}
	}
	b.orch.stop()
	if _, err := b.claim("i", operation, event.CredentialsServiceManager); err == nil || !strings.Contains(err.Error(), "ask again") {
		t.Errorf("without an orchestrator: %v", err)
	}
}

func TestClaim_ManyRefused_LogsFew(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	const claims, logged = 100, 20
	for range claims {
		if _, err := b.claimAs("avs", "i", "no-operation", event.CredentialsServiceManager); err == nil {
			t.Fatal("a claim for no operation is answered")
		}
	}
	// The broker may log one more after the interval.
	if n := strings.Count(b.log.String(), "claim refused"); n < logged || n > claims/2 {
		t.Errorf("the log has %d lines about %d claims, want %d", n, claims, logged)
	}
	long := strings.Repeat("LONG", 1000)
	for field, ask := range map[string][3]string{
		"instanceId": {long, "o", "n"}, "operationId": {"i", long, "n"}, "name": {"i", "o", long},
	} {
		_, err := b.claimAs("avs", ask[0], ask[1], ask[2])
		if err == nil || !strings.Contains(err.Error(), field+": is longer than 512 bytes") {
			t.Errorf("%s of %d bytes: %v", field, len(long), err)
		}
	}
	if strings.Contains(b.log.String(), "LONGLONG") {
		t.Error("what is too long is in the log")
	}
}
