package broker_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-project/keb/libs/event"
	"github.com/kyma-project/keb/libs/seal"
	"github.com/kyma-project/keb/libs/testkit"
	"github.com/kyma-project/keb/services/broker"
)

// smContext returns a context with other Service Manager credentials.
func smContext(secret string) map[string]any {
	return contextOf(map[string]any{"sm_operator_credentials": map[string]any{
		"clientid": "id", "clientsecret": secret, "sm_url": "https://sm.example.org", "url": "https://uaa.example.org",
	}})
}

// text returns one value.
func (b *bench) text(query string, args ...any) string {
	b.t.Helper()
	var value string
	require.NoError(b.t, b.db.Get(&value, query, args...))
	return value
}

const (
	sealedOf    = `SELECT sealed FROM broker.credentials WHERE instance_id = $1 AND name = $2`
	putSealed   = `UPDATE broker.credentials SET sealed = $3 WHERE instance_id = $1 AND name = $2`
	pendingOf   = `SELECT credentials ->> '` + event.CredentialsServiceManager + `' FROM broker.updates WHERE instance_id = $1`
	putPending  = `UPDATE broker.updates SET credentials = json_build_object('` + event.CredentialsServiceManager + `', $2::text) WHERE instance_id = $1`
	bindingOf   = `SELECT sealed FROM broker.bindings WHERE instance_id = $1 AND id = $2`
	putBinding  = `UPDATE broker.bindings SET sealed = $3 WHERE instance_id = $1 AND id = $2`
	notRevealed = "credentials cannot be opened: see the broker's log"
)

// flipped returns a sealed value with one flipped bit in its last part.
func flipped(sealed string, at int) string {
	turned := []byte(sealed)
	at += strings.LastIndex(sealed, ".") + 1
	if turned[at] == 'A' {
		turned[at] = 'B'
	} else {
		turned[at] = 'A'
	}
	return string(turned)
}

// opened waits until an operation may claim its credentials, and returns them.
func (b *bench) opened(instanceID, operation, name string) string {
	b.t.Helper()
	var text string
	testkit.Eventually(b.t, waitTimeout, "the credentials of "+operation, func() bool {
		a, err := b.claim(instanceID, operation, name)
		text = string(a.Credentials)
		return err == nil
	})
	return text
}

// refuses expects a claim to fail, and the log to contain the instance, the credentials and the reason, but no value.
func (b *bench) refuses(what, instanceID, operation, name string) {
	b.t.Helper()
	before := len(b.log.String())
	answer, err := b.claim(instanceID, operation, name)
	if err == nil || !strings.Contains(err.Error(), notRevealed) || len(answer.Credentials) > 0 {
		b.t.Errorf("%s: claimed %d bytes, %v", what, len(answer.Credentials), err)
	}
	logged := b.log.String()[before:]
	for _, want := range []string{"credentials not opened", "instance_id=" + instanceID, "name=" + name, "damaged or belongs to another owner"} {
		if !strings.Contains(logged, want) {
			b.t.Errorf("%s: the log does not contain %q: %s", what, want, logged)
		}
	}
	if strings.Contains(logged, canary) || strings.Contains(logged, "v1.k1.") {
		b.t.Errorf("%s: a value is in the log", what)
	}
}

func TestClaim_TamperedCredentials_IsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *broker.Config) { c.ResealEvery = time.Hour })
	sm, kc := event.CredentialsServiceManager, event.CredentialsKubeconfig
	withSM := ownOrder()
	withSM["context"] = smContext(canary)["context"]
	b.ended("i", b.accepted(b.put("i", withSM)), "succeeded")
	b.ended("j", b.accepted(b.put("j", withSM)), "succeeded")
	first, firstKC := b.text(sealedOf, "i", sm), b.text(sealedOf, "i", kc)
	b.ended("i", b.accepted(b.patch("i", smContext(canary+"-second"))), "succeeded")
	second := b.text(sealedOf, "i", sm)
	if first == second {
		t.Fatal("the update has changed nothing")
	}
	// A failed update leaves its credentials in the database; they never apply.
	b.hold(true)
	failing := b.accepted(b.patch("i", smContext(canary+"-third")))
	third := b.text(pendingOf, "i")
	if got := b.opened("i", failing, sm); !strings.Contains(got, canary+"-third") {
		t.Fatalf("the unchanged credentials are %s", got)
	}

	// Replace the credentials of the pending update.
	for at := range 60 {
		b.exec(putPending, "i", flipped(third, at))
		if _, err := b.claim("i", failing, sm); err == nil {
			t.Fatalf("an update's credentials with a flipped bit at %d are opened", at)
		}
	}
	for what, value := range map[string]string{"replayed": second, "replayed, older": first, "another's": b.text(sealedOf, "j", sm), "cut": third[:len(third)-8]} {
		b.exec(putPending, "i", value)
		b.refuses("of an update: "+what, "i", failing, sm)
	}
	b.exec(putPending, "i", third)
	if _, err := b.claim("i", failing, sm); err != nil {
		t.Errorf("when it is put back: %v", err)
	}
	b.exec(`DELETE FROM broker.updates`)

	// Replace the credentials of the instance.
	for at := range 60 {
		b.exec(putSealed, "i", sm, flipped(second, at))
		if _, err := b.claim("i", failing, sm); err == nil {
			t.Fatalf("credentials with a flipped bit at %d are opened", at)
		}
	}
	for what, value := range map[string]string{
		"replayed": first, "of an update that never counted": third, "another instance's": b.text(sealedOf, "j", sm), "another name's": firstKC,
		"another key's id": strings.Replace(second, "v1.k1.", "v1.k1x.", 1), "no sealed value": "CANARY",
	} {
		b.exec(putSealed, "i", sm, value)
		if what == "another key's id" {
			if _, err := b.claim("i", failing, sm); err == nil || !strings.Contains(b.log.String(), `key id \"k1x\"`) {
				t.Errorf("%s: %v", what, err)
			}
			continue
		}
		b.refuses("of the instance: "+what, "i", failing, sm)
	}
	b.exec(putSealed, "i", kc, b.text(sealedOf, "j", kc))
	b.refuses("another's kubeconfig", "i", failing, kc)
	b.exec(putSealed, "i", sm, second)
	if a, err := b.claim("i", failing, sm); err != nil || !strings.Contains(string(a.Credentials), canary+"-second") {
		t.Errorf("when it is put back: %v", err)
	}
	b.hold(false)
	b.ended("i", failing, "succeeded")
	if strings.Contains(b.log.String(), canary) {
		t.Error("a secret is in the log")
	}
}

func TestGetBinding_Tampered_Fails(t *testing.T) {
	t.Parallel()
	b, _ := newBindingBench(t, func(c *broker.Config) { c.ResealEvery = time.Hour })
	for _, id := range []string{"a", "b"} {
		b.expect("bind", b.bind("i", id, nil), http.StatusCreated)
	}
	old, other := b.text(bindingOf, "i", "a"), b.text(bindingOf, "i", "b")
	b.expect("unbind", b.unbind("i", "a"), http.StatusOK)
	b.expect("bind again", b.bind("i", "a", nil), http.StatusCreated)
	now := b.text(bindingOf, "i", "a")
	cases := map[string]string{
		"of an earlier binding with the id": old, "of another binding": other, "credentials": b.text(sealedOf, "i", event.CredentialsServiceManager),
	}
	for at := range 20 {
		cases[fmt.Sprintf("flipped at %d", at*3)] = flipped(now, at*3)
	}
	for what, value := range cases {
		b.exec(putBinding, "i", "a", value)
		before := len(b.log.String())
		for _, a := range []answer{b.binding("i", "a"), b.bind("i", "a", nil)} {
			if a.status != http.StatusInternalServerError || strings.Contains(a.raw, canary) || kubeconfigOf(a) != "" {
				t.Errorf("%s: %d %s", what, a.status, a.raw)
			}
		}
		logged := b.log.String()[before:]
		if !strings.Contains(logged, `open kubeconfig of binding \"a\" of instance \"i\"`) || strings.Contains(logged, canary) || strings.Contains(logged, "v1.k1.") {
			t.Errorf("%s: the log is %s", what, logged)
		}
	}
	// The binding can still be removed.
	b.expect("unbind", b.unbind("i", "a"), http.StatusOK)
	if got := kubeconfigOf(b.binding("i", "b")); !strings.Contains(got, canary) {
		t.Error("the other binding cannot be read")
	}
}

// A value that was sealed before revisions existed opens, and is sealed anew with a revision. The old value then no longer opens.
func TestReseal_ValueWithoutRevision_GetsOne(t *testing.T) {
	t.Parallel()
	b, _ := newBindingBench(t, func(c *broker.Config) { c.ResealEvery = 20 * time.Millisecond })
	made := b.bind("i", "b", nil)
	b.expect("bind", made, http.StatusCreated)
	b.stop()
	keys, err := seal.ParseKeyring(b.cfg.SealKeys)
	require.NoError(t, err)
	earlier := func(plain, owner string) string {
		t.Helper()
		sealed, err := keys.Seal([]byte(plain), []byte(owner))
		require.NoError(t, err)
		return sealed
	}
	sm := earlier(`{"clientsecret":"`+canary+`-old"}`, "i\x00"+event.CredentialsServiceManager)
	b.exec(`UPDATE broker.credentials SET revision = '', sealed = $1 WHERE instance_id = 'i'`, sm)
	kubeconfig := earlier("kubeconfig "+canary+"-old", "binding\x00i\x00b")
	b.exec(`UPDATE broker.bindings SET revision = '', sealed = $1`, kubeconfig)
	b.prepare()
	if got := kubeconfigOf(b.binding("i", "b")); got != "kubeconfig "+canary+"-old" {
		t.Errorf("the binding of an earlier release reads %q", got)
	}
	b.run()
	testkit.Eventually(t, waitTimeout, "revisions", func() bool {
		return b.count(`SELECT (SELECT count(*) FROM broker.credentials WHERE revision = '') + (SELECT count(*) FROM broker.bindings WHERE revision = '')`) == 0
	})
	if got := kubeconfigOf(b.binding("i", "b")); got != "kubeconfig "+canary+"-old" {
		t.Errorf("afterwards it reads %q", got)
	}
	b.hold(true)
	update := b.accepted(b.patch("i", parameters(map[string]any{"machineType": "Standard_D8_v3"})))
	if got := b.opened("i", update, event.CredentialsServiceManager); !strings.Contains(got, canary+"-old") {
		t.Errorf("claimed %s", got)
	}
	b.exec(putSealed, "i", event.CredentialsServiceManager, sm)
	b.refuses("the value from before", "i", update, event.CredentialsServiceManager)
	b.hold(false)
	b.ended("i", update, "succeeded")
}
