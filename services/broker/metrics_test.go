package broker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kyma-project/keb/libs/testkit"
)

// shows waits until the metrics with these names have the wanted values. Gauges from the database are missing while the
// database is slow.
func (b *bench) shows(want string, names ...string) {
	b.t.Helper()
	var err error
	defer func() {
		if err != nil {
			b.t.Error(err)
		}
	}()
	testkit.Eventually(b.t, waitTimeout, "the gauges", func() bool {
		err = testutil.GatherAndCompare(b.registry, strings.NewReader(want), names...)
		return err == nil
	})
}

func TestGauges_Instances_AreCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for i, id := range []string{"i-1", "i-2", "i-3", "gone"} {
		body := order([]string{azure, azure, aws, aws}[i])
		account := accountContext()
		account["globalaccount_id"] = []string{"ga-1", "ga-2", "ga-1", "ga-3"}[i]
		if id == "i-3" {
			account["license_type"] = "CUSTOMER"
		}
		body["context"] = account
		b.ended(id, b.accepted(b.put(id, body)), "succeeded")
	}
	removed := b.accepted(b.send("DELETE", "/v2/service_instances/gone?accepts_incomplete=true&service_id="+serviceID+"&plan_id="+aws, nil))
	b.ended("gone", removed, "succeeded")
	b.hold(true)
	b.accepted(b.put("waits", order(azure)))
	testkit.Eventually(t, waitTimeout, "the operation has started", func() bool {
		return b.count(`SELECT count(*) FROM broker.operations WHERE state = 'in progress'`) == 1
	})

	want := `
# HELP keb_broker_operations Operations that have not ended, as the broker tells platforms.
# TYPE keb_broker_operations gauge
keb_broker_operations{plan="azure",state="in progress",type="provision"} 1
# HELP keb_global_account_instances Instances of the largest global accounts.
# TYPE keb_global_account_instances gauge
keb_global_account_instances{global_account_id="ga-1"} 3
keb_global_account_instances{global_account_id="ga-2"} 1
# HELP keb_global_accounts Global accounts with instances.
# TYPE keb_global_accounts gauge
keb_global_accounts 2
# HELP keb_instances Instances that are not deleted.
# TYPE keb_instances gauge
keb_instances{plan="aws"} 1
keb_instances{plan="azure"} 3
# HELP keb_instances_by_license_type Instances by the license type of their context.
# TYPE keb_instances_by_license_type gauge
keb_instances_by_license_type{license_type="CUSTOMER"} 1
keb_instances_by_license_type{license_type="none"} 3
# HELP keb_runtimes Runtimes of instances that are not deleted, by state.
# TYPE keb_runtimes gauge
keb_runtimes{plan="aws",state="succeeded"} 1
keb_runtimes{plan="azure",state="provisioning"} 1
keb_runtimes{plan="azure",state="succeeded"} 2
`
	b.shows(want, "keb_broker_operations", "keb_global_account_instances", "keb_global_accounts", "keb_instances",
		"keb_instances_by_license_type", "keb_runtimes")
	if problems, err := testutil.GatherAndLint(b.registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

func TestGauges_Bindings_CountUsableByPlan(t *testing.T) {
	t.Parallel()
	b, _ := newBindingBench(t, nil)
	b.ended("other", b.accepted(b.put("other", order(aws))), "succeeded")
	for _, id := range []string{"b-1", "b-2", "b-3"} {
		b.expect("bind", b.bind("i", id, nil), 201)
	}
	b.expect("unbind", b.unbind("i", "b-2"), 200)
	// Bindings that are being created or removed do not count.
	b.exec(`INSERT INTO broker.bindings (instance_id, id, subscription, runtime_id, expiration_seconds, created_at, expires_at, claimed_until, due_at)
		VALUES ('i', 'being made', '', '', 600, now(), now() + interval '1 day', now() + interval '1 day', now() + interval '1 day')`)
	counted := func(azure int) string {
		return fmt.Sprintf(`
# HELP keb_bindings Bindings that have not expired.
# TYPE keb_bindings gauge
keb_bindings{plan="aws"} 0
keb_bindings{plan="azure"} %d
`, azure)
	}
	b.shows(counted(2), "keb_bindings")
	// The binding is expired, and not cleaned up yet.
	b.exec(`UPDATE broker.bindings SET expires_at = now() - interval '1 second', due_at = now() + interval '1 day' WHERE id IN ('b-1', 'b-3')`)
	b.restart()
	b.shows(counted(0), "keb_bindings")
}
